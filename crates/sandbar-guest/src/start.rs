//! `Start` and `Connect`: what the commands and the processes part have in common.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use sandbar_core::{
    Command, EnvVars, Error, ErrorKind, ExitStatus, GuestPath, PartialOutput, ProcessExit, PtySize, Result,
    UserName,
};
use sandbar_wire::envd::{
    Channel, Code, ConnectRequest, EndEvent, ProcessConfig, ProcessEvent, ProcessSelector, Pty, RpcError,
    Signal, StartRequest, causes, decode_process_event,
};
use tokio::time::{Instant, timeout, timeout_at};

use crate::client::GuestClient;
use crate::fault;
use crate::messages::{Messages, Next};
use crate::operation::Operation;

/// The call that starts a process.
pub const START: &str = "/process.Process/Start";
const CONNECT: &str = "/process.Process/Connect";
/// How long telling what a limit did may take; without an answer the cause stays unknown. And how long a stream's last message may take after its
/// process' end.
const CAUSE: Duration = Duration::from_secs(2);
/// How much longer than a command's timeout its stream may go on, before the agent is taken for unable to end it.
const GRACE: Duration = Duration::from_secs(10);

/// What to start, in the contract's words.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) command: &'a Command,
    pub(crate) cwd: Option<&'a GuestPath>,
    pub(crate) env: &'a EnvVars,
    pub(crate) user: Option<&'a UserName>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) stdin: bool,
    pub(crate) pty: Option<PtySize>,
    pub(crate) tag: Option<String>,
}

/// A process of the agent's that is followed.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) pid: u32,
    messages: Messages,
    started: Timestamp,
    /// When its stream has to be over.
    limit: Option<Instant>,
}

/// What a followed process says.
#[derive(Debug)]
pub(crate) enum Said {
    Data(Channel, Bytes),
    End(ProcessExit),
}

/// Why a process is not followed any more.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// Its time was over, and its tree was ended.
    TimedOut,
    /// Its time was over, and it is not known whether its tree was ended.
    TimedOutSilently,
    /// Anything else.
    Failed(Error),
}

impl GuestClient {
    /// Starts a process. The inner error is the agent's refusal.
    pub(crate) async fn start(
        &self,
        wish: Wish<'_>,
        operation: Operation,
    ) -> Result<std::result::Result<Followed, RpcError>> {
        let request = request(&wish, operation)?;
        let started = Timestamp::now();
        let limit =
            wish.timeout.and_then(|timeout| Instant::now().checked_add(timeout.saturating_add(GRACE)));
        let starting = async {
            match self.open_stream(START, &request, wish.user, wish.timeout, operation).await? {
                Ok(messages) => self.follow(messages, started, limit, operation).await,
                Err(error) => Ok(Err(error)),
            }
        };
        // Nothing that comes before the start may take longer than the command itself. Whether it runs is not known then.
        match wish.timeout {
            None => starting.await,
            Some(bound) => match timeout(bound, starting).await {
                Ok(done) => done,
                Err(_) => Err(timed_out(operation, wish.timeout).with_partial(PartialOutput::default())),
            },
        }
    }

    /// Follows a process that runs.
    pub(crate) async fn connect_to(
        &self,
        pid: u32,
        operation: Operation,
    ) -> Result<std::result::Result<Followed, RpcError>> {
        let request = ConnectRequest { process: ProcessSelector::pid(pid) };
        match self.open_stream(CONNECT, &request, None, None, operation).await? {
            Ok(messages) => self.follow(messages, Timestamp::now(), None, operation).await,
            Err(error) => Ok(Err(error)),
        }
    }

    /// Reads the first message, which says that the process runs.
    async fn follow(
        &self,
        mut messages: Messages,
        started: Timestamp,
        limit: Option<Instant>,
        operation: Operation,
    ) -> Result<std::result::Result<Followed, RpcError>> {
        match self.first_of(&mut messages, operation).await? {
            Next::Message(payload) => match decode_process_event(&payload) {
                Ok(ProcessEvent::Start { pid }) => Ok(Ok(Followed { pid, messages, started, limit })),
                Ok(_) => Err(fault::nonsense(operation, &"the first message is not the start")),
                Err(cause) => Err(fault::nonsense(operation, &cause)),
            },
            Next::End(Some(error)) => Ok(Err(error)),
            Next::End(None) => Err(fault::nonsense(operation, &"the stream ended before the start")),
            Next::Lost(failure) => Err(self.lost(operation, failure).await),
            Next::Nonsense(why) => Err(fault::nonsense(operation, &why)),
        }
    }

    /// The next that a process says. After its end there is nothing more to ask for.
    pub(crate) async fn next_of(
        &self,
        process: &mut Followed,
        operation: Operation,
    ) -> std::result::Result<Said, Stopped> {
        loop {
            let next = match process.limit {
                // What never stops talking would never be interrupted.
                Some(limit) if Instant::now() >= limit => return Err(Stopped::TimedOutSilently),
                Some(limit) => match timeout_at(limit, process.messages.next()).await {
                    Ok(next) => next,
                    Err(_) => return Err(Stopped::TimedOutSilently),
                },
                None => process.messages.next().await,
            };
            match next {
                Next::Message(payload) => match decode_process_event(&payload) {
                    Ok(ProcessEvent::Data { channel, bytes }) => return Ok(Said::Data(channel, bytes)),
                    Ok(ProcessEvent::End(end)) => {
                        // The last message follows at once; with it the connection is free for the next command.
                        let _ = timeout(CAUSE, process.messages.next()).await;
                        return self.end_of(&end, process.started).await;
                    }
                    Ok(ProcessEvent::Start { .. } | ProcessEvent::Keepalive | ProcessEvent::Unknown) => {}
                    Err(cause) => return Err(Stopped::Failed(fault::nonsense(operation, &cause))),
                },
                Next::End(Some(error)) if error.code == Code::DeadlineExceeded => {
                    return Err(Stopped::TimedOut);
                }
                Next::End(Some(error)) => return Err(Stopped::Failed(fault::rpc(operation, &error))),
                Next::End(None) => {
                    let why = "the stream ended without the process' end";
                    return Err(Stopped::Failed(fault::nonsense(operation, &why)));
                }
                Next::Lost(failure) => return Err(Stopped::Failed(self.lost(operation, failure).await)),
                Next::Nonsense(why) => return Err(Stopped::Failed(fault::nonsense(operation, &why))),
            }
        }
    }

    async fn end_of(&self, end: &EndEvent, started: Timestamp) -> std::result::Result<Said, Stopped> {
        if end.cause.as_deref() == Some(causes::TIMEOUT) {
            return Err(Stopped::TimedOut);
        }
        let status = status_of(end);
        let cause = if was_killed(status) {
            timeout(CAUSE, self.transport.cause_since(started)).await.ok().flatten()
        } else {
            None
        };
        Ok(Said::End(ProcessExit { status, cause }))
    }
}

/// The status in an end event. What is not certain is unknown.
pub fn status_of(end: &EndEvent) -> ExitStatus {
    match (end.cause.as_deref(), end.signal) {
        (Some(causes::UNKNOWN), _) => ExitStatus::Unknown,
        (_, Some(signal)) => i32::try_from(signal).map_or(ExitStatus::Unknown, ExitStatus::Signal),
        (_, None) if end.exited => ExitStatus::Code(end.exit_code),
        (_, None) => signal_in(&end.status).map_or(ExitStatus::Unknown, ExitStatus::Signal),
    }
}

/// The signal in a status in Go's words (`signal: killed`, `signal: aborted (core dumped)`), which is all that other agents tell of it.
fn signal_in(status: &str) -> Option<i32> {
    /// Past the last of them that has words of its own.
    const NAMED: std::ops::Range<i32> = 1..32;
    let words = status.strip_prefix("signal: ")?;
    let words = words.strip_suffix(" (core dumped)").unwrap_or(words);
    if let Some(number) = words.strip_prefix("signal ") {
        return number.parse().ok().filter(|number| (1..=64).contains(number));
    }
    NAMED.into_iter().find(|number| words != "signal" && Signal::description(*number) == words)
}

/// Whether a limit may be behind it: killed, or a shell's word for a child that was, or a start that was refused.
fn was_killed(status: ExitStatus) -> bool {
    matches!(status, ExitStatus::Signal(9) | ExitStatus::Code(137) | ExitStatus::Unknown)
}

fn request(wish: &Wish<'_>, operation: Operation) -> Result<StartRequest> {
    wish.command.check().map_err(|error| error.with_backend(operation.backend))?;
    let text = |what: &str, bytes: &[u8]| {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| {
            Error::unsupported(
                operation.name,
                format!("{what} that is not UTF-8"),
                "the guest's protocol carries text",
            )
            .with_backend(operation.backend)
            .with_hint("pass the bytes by standard input or a file")
        })
    };
    let mut words =
        wish.command.argv().iter().map(|argument| text("an argument", argument.as_encoded_bytes()));
    let cmd = words.next().transpose()?.unwrap_or_default();
    let args = words.collect::<Result<_>>()?;
    let cwd = wish.cwd.map(|cwd| text("a working folder", cwd.as_bytes())).transpose()?;
    let envs: BTreeMap<_, _> =
        wish.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Ok(StartRequest {
        process: ProcessConfig { cmd, args, envs, cwd },
        pty: wish.pty.map(|size| Pty { size: Some(wire_size(size)) }),
        tag: wish.tag.clone(),
        stdin: Some(wish.stdin),
    })
}

/// The size of a terminal, in the agent's words.
pub(crate) fn wire_size(size: PtySize) -> sandbar_wire::envd::PtySize {
    sandbar_wire::envd::PtySize { cols: size.cols.into(), rows: size.rows.into() }
}

/// The error of a command whose time was over.
pub(crate) fn timed_out(operation: Operation, timeout: Option<Duration>) -> Error {
    let after = timeout.map(|timeout| format!(" after {timeout:?}")).unwrap_or_default();
    operation.fail(ErrorKind::Timeout, format!("the command ran into its timeout{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_certain_is_unknown_and_never_a_success() {
        let end = |signal, exited, exit_code, cause: Option<&str>| {
            status_of(&EndEvent {
                signal,
                exited,
                exit_code,
                cause: cause.map(str::to_owned),
                ..EndEvent::default()
            })
        };
        assert_eq!(end(None, true, 3, None), ExitStatus::Code(3));
        assert_eq!(end(Some(9), false, -1, None), ExitStatus::Signal(9));
        assert_eq!(end(None, false, 0, None), ExitStatus::Unknown);
        assert_eq!(end(None, true, 0, Some(causes::UNKNOWN)), ExitStatus::Unknown);
        assert_eq!(end(Some(u32::MAX), false, 0, None), ExitStatus::Unknown);
        let told = |status: &str| status_of(&EndEvent { status: status.into(), ..EndEvent::default() });
        assert_eq!(told("signal: killed"), ExitStatus::Signal(9));
        assert_eq!(told("signal: segmentation fault (core dumped)"), ExitStatus::Signal(11));
        assert_eq!(told("signal: signal 35"), ExitStatus::Signal(35));
        for odd in ["", "signal: ", "signal: signal", "signal: signal 0", "exit status 0", "killed"] {
            assert_eq!(told(odd), ExitStatus::Unknown, "{odd}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_and_not_bent() {
        use std::os::unix::ffi::OsStringExt;
        let command = Command::new("echo").arg(std::ffi::OsString::from_vec(vec![0xff]));
        let wish = Wish {
            command: &command,
            cwd: None,
            env: &EnvVars::new(),
            user: None,
            timeout: None,
            stdin: false,
            pty: None,
            tag: None,
        };
        assert_eq!(request(&wish, Operation::new("run", "test")).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
