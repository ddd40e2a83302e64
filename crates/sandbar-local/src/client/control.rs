use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Method;
use http::header::CONTENT_TYPE;
use sandbar_core::{Error, ErrorKind, ProcessControl, PtySize, Result, Signal, SignalReach, State};
use sandbar_wire::envd::{
    Channel, Code, Empty, ProcessInput, ProcessSelector, Pty, RpcError, SelectRequest, SendInputRequest,
    SendSignalRequest, SignalAnyRequest, StreamInput, UNARY_CONTENT_TYPE, UpdateRequest, input_frame,
    message_frame,
};

use super::body::{streamed, whole};
use super::fault;
use super::link::Link;
use super::rpc::{Next, request};
use super::start::wire_size;
use crate::error::fail;

const WRITE: &str = "write";
const SIGNAL: &str = "signal";
/// Most bytes of input that go in a call of their own, on a connection that is there; more are streamed.
const SMALL: usize = 64 << 10;
/// Bytes of streamed input in one message: about what a pipe holds, what encodes without a remainder, and little enough for memory that is used
/// again (larger blocks are mapped anew each time).
const PIECE: usize = 48 << 10;
/// How long killing a process may take whose time was over long ago, since its agent seems not to be itself.
const AT_LAST: Duration = Duration::from_secs(3);
/// How long a process may leave its input unread: as long as it likes, for as long as a sandbox may be thought to live.
const PATIENCE: Duration = Duration::from_secs(30 * 24 * 3600);

/// How to talk to one process.
#[derive(Debug)]
pub(super) struct Control<'a> {
    link: &'a Link,
    pid: u32,
    terminal: bool,
}

impl<'a> Control<'a> {
    /// To one with pipes.
    pub(super) fn pipes(link: &'a Link, pid: u32) -> Self {
        Self { link, pid, terminal: false }
    }

    /// Writes it all, waiting as long as the process does not read.
    pub(super) async fn write_all(&self, bytes: Bytes) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() > SMALL {
            return self.pour(bytes).await;
        }
        let input = if self.terminal {
            ProcessInput { pty: Some(bytes), stdin: None }
        } else {
            ProcessInput { stdin: Some(bytes), pty: None }
        };
        let message = SendInputRequest { process: ProcessSelector::pid(self.pid), input };
        let text = serde_json::to_vec(&message)
            .map_err(|cause| fail(ErrorKind::Unexpected, WRITE, cause.to_string()))?;
        let headers = [(CONTENT_TYPE.as_str(), UNARY_CONTENT_TYPE)];
        let request = request(Method::POST, "/process.Process/SendInput", None, &headers, whole(text))?;
        let response = self.link.send(request, PATIENCE, WRITE).await?;
        let status = response.status();
        let body = self.link.collect(response.into_body(), WRITE).await?;
        if status != http::StatusCode::OK {
            return Err(refused(WRITE, &RpcError::from_response(status.as_u16(), &body)));
        }
        Ok(())
    }

    /// Writes much in one call, so that the agent writes one piece while the next is on its way.
    async fn pour(&self, mut bytes: Bytes) -> Result<()> {
        let start = StreamInput::Start(SelectRequest { process: ProcessSelector::pid(self.pid) });
        // Everything but a terminal's means standard input.
        let channel = if self.terminal { Channel::Pty } else { Channel::Stdout };
        let pieces = std::iter::from_fn(move || {
            let piece = bytes.split_to(bytes.len().min(PIECE));
            (!piece.is_empty()).then(|| input_frame(channel, &piece))
        });
        let frames = stream::iter(std::iter::once(message_frame(&start)).chain(pieces));
        let (body, _, _) = streamed(frames.map(Ok).boxed());
        let answer = self.link.pour("/process.Process/StreamInput", body, PATIENCE, WRITE).await?;
        let mut messages = answer.map_err(|error| refused(WRITE, &error))?;
        loop {
            match self.link.first_of(&mut messages, WRITE).await? {
                // It says nothing but that it is done.
                Next::Message(_) => {}
                Next::End(None) => return Ok(()),
                Next::End(Some(error)) => return Err(refused(WRITE, &error)),
                Next::Lost(failure) => return Err(self.link.lost(WRITE, failure).await),
                Next::Nonsense(why) => return Err(fault::nonsense(WRITE, &why)),
            }
        }
    }

    /// Closes standard input.
    pub(super) async fn close(&self) -> Result<()> {
        let message = SelectRequest { process: ProcessSelector::pid(self.pid) };
        let answer = self.link.call::<Empty>("/process.Process/CloseStdin", &message, None, WRITE).await?;
        match answer {
            Ok(Empty {}) => Ok(()),
            // Its input ended with it.
            Err(error) if error.code == Code::NotFound => Ok(()),
            Err(error) => Err(refused(WRITE, &error)),
        }
    }

    pub(super) async fn resize_terminal(&self, size: PtySize) -> Result<()> {
        const RESIZE: &str = "resize";
        let message = UpdateRequest {
            process: ProcessSelector::pid(self.pid),
            pty: Some(Pty { size: Some(wire_size(size)) }),
        };
        match self.link.call::<Empty>("/process.Process/Update", &message, None, RESIZE).await? {
            Ok(Empty {}) => Ok(()),
            Err(error) => Err(refused(RESIZE, &error)),
        }
    }

    /// Kills what outlasted its timeout; `None` means that nobody knows whether that worked.
    pub(super) async fn end_at_last(&self) -> Option<bool> {
        let killed = tokio::time::timeout(AT_LAST, self.signal_process(Signal::KILL)).await;
        killed.ok()?.ok().map(|_| true)
    }

    /// Signals the process and its tree; `false` means that there is none.
    pub(super) async fn signal_process(&self, signal: Signal) -> Result<bool> {
        let message = SendSignalRequest {
            process: ProcessSelector::pid(self.pid),
            signal: sandbar_wire::envd::Signal::new(signal.0),
        };
        match self.link.call::<Empty>("/process.Process/SendSignal", &message, None, SIGNAL).await? {
            Ok(Empty {}) => Ok(true),
            Err(error) if error.code == Code::NotFound => Ok(false),
            Err(error) if error.code == Code::Unimplemented => Err(no_such_signal(signal)),
            Err(error) => Err(fault::rpc(SIGNAL, &error)),
        }
    }

    /// Signals a process that anybody started. `None` means that this agent can't.
    pub(super) async fn signal_whoever(&self, signal: Signal, reach: SignalReach) -> Result<Option<bool>> {
        let wire = sandbar_wire::envd::Signal::new(signal.0);
        // The agent has one word for a signal and a call that it does not know.
        if !wire.is_standard() {
            return Err(no_such_signal(signal));
        }
        let message = SignalAnyRequest { pid: self.pid, signal: wire, tree: reach == SignalReach::Tree };
        match self.link.call::<Empty>("/process.Process/SignalAny", &message, None, SIGNAL).await? {
            Ok(Empty {}) => Ok(Some(true)),
            Err(error) if error.code == Code::NotFound => Ok(Some(false)),
            Err(error) if error.code == Code::Unimplemented => Ok(None),
            Err(error) => Err(fault::rpc(SIGNAL, &error)),
        }
    }
}

fn no_such_signal(signal: Signal) -> Error {
    fail(ErrorKind::InvalidInput, SIGNAL, format!("{} is not a signal that can be sent", signal.0))
}

/// The agent's refusals of input and size: what is not open, or no terminal, is a matter of the process' state.
fn refused(operation: &'static str, error: &RpcError) -> Error {
    match error.code {
        Code::Internal | Code::Unknown | Code::FailedPrecondition => {
            Error::conflict(operation, State::Running, fault::readable(&error.message))
                .with_backend(crate::config::BACKEND)
        }
        _ => fault::rpc(operation, error),
    }
}

/// As [`Control`], for handles that live on their own.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) link: Arc<Link>,
    pub(super) pid: u32,
    pub(super) terminal: bool,
}

impl Handle {
    fn control(&self) -> Control<'_> {
        Control { link: &self.link, pid: self.pid, terminal: self.terminal }
    }
}

#[async_trait]
impl ProcessControl for Handle {
    async fn write(&self, bytes: Bytes) -> Result<()> {
        self.control().write_all(bytes).await
    }

    async fn close_stdin(&self) -> Result<()> {
        if self.terminal {
            return Err(Error::conflict(WRITE, State::Running, "a terminal has no end of file of its own")
                .with_backend(crate::config::BACKEND)
                .with_hint("write byte 4 to it"));
        }
        self.control().close().await
    }

    async fn resize(&self, size: PtySize) -> Result<()> {
        self.control().resize_terminal(size).await
    }

    async fn signal(&self, signal: Signal) -> Result<bool> {
        self.control().signal_process(signal).await
    }
}
