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

use crate::body::{streamed, whole};
use crate::client::GuestClient;
use crate::fault;
use crate::messages::Next;
use crate::operation::Operation;
use crate::rpc::request;
use crate::start::wire_size;

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
pub(crate) struct Control<'a> {
    client: &'a GuestClient,
    pid: u32,
    terminal: bool,
}

impl<'a> Control<'a> {
    /// To one with pipes.
    pub(crate) fn pipes(client: &'a GuestClient, pid: u32) -> Self {
        Self { client, pid, terminal: false }
    }

    /// Writes it all, waiting as long as the process does not read.
    pub(crate) async fn write_all(&self, bytes: Bytes) -> Result<()> {
        let operation = self.client.operation(WRITE);
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
            .map_err(|cause| operation.fail(ErrorKind::Unexpected, cause.to_string()))?;
        let headers = [(CONTENT_TYPE.as_str(), UNARY_CONTENT_TYPE)];
        let request =
            request(Method::POST, "/process.Process/SendInput", None, &headers, whole(text), operation)?;
        let response = self.client.send(request, PATIENCE, operation).await?;
        let status = response.status();
        let body = self.client.collect(response.into_body(), operation).await?;
        if status != http::StatusCode::OK {
            return Err(refused(operation, &RpcError::from_response(status.as_u16(), &body)));
        }
        Ok(())
    }

    /// Writes much in one call, so that the agent writes one piece while the next is on its way.
    async fn pour(&self, mut bytes: Bytes) -> Result<()> {
        let operation = self.client.operation(WRITE);
        let start = StreamInput::Start(SelectRequest { process: ProcessSelector::pid(self.pid) });
        // Everything but a terminal's means standard input.
        let channel = if self.terminal { Channel::Pty } else { Channel::Stdout };
        let pieces = std::iter::from_fn(move || {
            let piece = bytes.split_to(bytes.len().min(PIECE));
            (!piece.is_empty()).then(|| input_frame(channel, &piece))
        });
        let frames = stream::iter(std::iter::once(message_frame(&start)).chain(pieces));
        let (body, _, _) = streamed(frames.map(Ok).boxed());
        let answer = self.client.pour("/process.Process/StreamInput", body, PATIENCE, operation).await?;
        let mut messages = answer.map_err(|error| refused(operation, &error))?;
        loop {
            match self.client.first_of(&mut messages, operation).await? {
                // It says nothing but that it is done.
                Next::Message(_) => {}
                Next::End(None) => return Ok(()),
                Next::End(Some(error)) => return Err(refused(operation, &error)),
                Next::Lost(failure) => return Err(self.client.lost(operation, failure).await),
                Next::Nonsense(why) => return Err(fault::nonsense(operation, &why)),
            }
        }
    }

    /// Closes standard input.
    pub(crate) async fn close(&self) -> Result<()> {
        let operation = self.client.operation(WRITE);
        let message = SelectRequest { process: ProcessSelector::pid(self.pid) };
        let answer =
            self.client.call::<Empty>("/process.Process/CloseStdin", &message, None, operation).await?;
        match answer {
            Ok(Empty {}) => Ok(()),
            // Its input ended with it.
            Err(error) if error.code == Code::NotFound => Ok(()),
            Err(error) => Err(refused(operation, &error)),
        }
    }

    pub(crate) async fn resize_terminal(&self, size: PtySize) -> Result<()> {
        const RESIZE: &str = "resize";
        let operation = self.client.operation(RESIZE);
        let message = UpdateRequest {
            process: ProcessSelector::pid(self.pid),
            pty: Some(Pty { size: Some(wire_size(size)) }),
        };
        match self.client.call::<Empty>("/process.Process/Update", &message, None, operation).await? {
            Ok(Empty {}) => Ok(()),
            Err(error) => Err(refused(operation, &error)),
        }
    }

    /// Kills what outlasted its timeout; `None` means that nobody knows whether that worked.
    pub(crate) async fn end_at_last(&self) -> Option<bool> {
        let killed = tokio::time::timeout(AT_LAST, self.signal_process(Signal::KILL)).await;
        killed.ok()?.ok().map(|_| true)
    }

    /// Signals the process and its tree; `false` means that there is none.
    pub(crate) async fn signal_process(&self, signal: Signal) -> Result<bool> {
        let operation = self.client.operation(SIGNAL);
        let message = SendSignalRequest {
            process: ProcessSelector::pid(self.pid),
            signal: sandbar_wire::envd::Signal::new(signal.0),
        };
        match self.client.call::<Empty>("/process.Process/SendSignal", &message, None, operation).await? {
            Ok(Empty {}) => Ok(true),
            Err(error) if error.code == Code::NotFound => Ok(false),
            Err(error) if error.code == Code::Unimplemented => Err(no_such_signal(operation, signal)),
            Err(error) => Err(fault::rpc(operation, &error)),
        }
    }

    /// Signals a process that anybody started. `None` means that this agent can't.
    pub(crate) async fn signal_whoever(&self, signal: Signal, reach: SignalReach) -> Result<Option<bool>> {
        let operation = self.client.operation(SIGNAL);
        let wire = sandbar_wire::envd::Signal::new(signal.0);
        // The agent has one word for a signal and a call that it does not know.
        if !wire.is_standard() {
            return Err(no_such_signal(operation, signal));
        }
        let message = SignalAnyRequest { pid: self.pid, signal: wire, tree: reach == SignalReach::Tree };
        match self.client.call::<Empty>("/process.Process/SignalAny", &message, None, operation).await? {
            Ok(Empty {}) => Ok(Some(true)),
            Err(error) if error.code == Code::NotFound => Ok(Some(false)),
            Err(error) if error.code == Code::Unimplemented => Ok(None),
            Err(error) => Err(fault::rpc(operation, &error)),
        }
    }
}

pub(crate) fn no_such_signal(operation: Operation, signal: Signal) -> Error {
    operation.fail(ErrorKind::InvalidInput, format!("{} is not a signal that can be sent", signal.0))
}

/// The agent's refusals of input and size: what is not open, or no terminal, is a matter of the process' state.
fn refused(operation: Operation, error: &RpcError) -> Error {
    match error.code {
        Code::Internal | Code::Unknown | Code::FailedPrecondition => {
            Error::conflict(operation.name, State::Running, fault::readable(&error.message))
                .with_backend(operation.backend)
        }
        _ => fault::rpc(operation, error),
    }
}

/// As [`Control`], for handles that live on their own.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) client: GuestClient,
    pub(crate) pid: u32,
    pub(crate) terminal: bool,
}

impl Handle {
    fn control(&self) -> Control<'_> {
        Control { client: &self.client, pid: self.pid, terminal: self.terminal }
    }
}

#[async_trait]
impl ProcessControl for Handle {
    async fn write(&self, bytes: Bytes) -> Result<()> {
        self.control().write_all(bytes).await
    }

    async fn close_stdin(&self) -> Result<()> {
        let operation = self.client.operation(WRITE);
        if self.terminal {
            return Err(Error::conflict(
                operation.name,
                State::Running,
                "a terminal has no end of file of its own",
            )
            .with_backend(operation.backend)
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
