use std::time::Instant;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use sandbar_core::{
    Command, Commands, Error, ErrorKind, ExitStatus, Output, PartialOutput, ProcessExit, Result, RunOptions,
    Stdin,
};
use sandbar_wire::envd::{Channel, RpcError, reason};

use crate::client::GuestClient;
use crate::control::Control;
use crate::fault;
use crate::start::{Followed, Said, Stopped, Wish, timed_out};

const RUN: &str = "run";
/// A shell's code for a program that is not there.
const NOT_FOUND: i32 = 127;
/// A shell's code for a program that can't be executed.
const NOT_EXECUTABLE: i32 = 126;

#[async_trait]
impl Commands for GuestClient {
    async fn run_opts(&self, command: &Command, options: RunOptions) -> Result<Output> {
        let operation = self.operation(RUN);
        let RunOptions { cwd, env, user, timeout, stdin, output_limit } = options;
        let begun = Instant::now();
        let input = match stdin {
            Stdin::Null => None,
            Stdin::Bytes(bytes) => Some(bytes),
        };
        let wish = Wish {
            command,
            cwd: cwd.as_ref(),
            env: &env,
            user: user.as_ref(),
            timeout,
            stdin: input.is_some(),
            pty: None,
            tag: None,
        };
        let mut process = match self.start(wish, operation).await? {
            Ok(process) => process,
            Err(error) => return self.shell_answer(&error, begun),
        };
        let mut kept = Kept::new(output_limit);
        let pid = process.pid;
        let reading = self.read(&mut process, &mut kept);
        let ended = match input {
            None => reading.await,
            Some(bytes) => {
                let control = Control::pipes(self, pid);
                let writing = async {
                    // A program that does not read all of its input is none the worse for it; its exit tells.
                    let _ = control.write_all(bytes).await;
                    let _ = control.close().await;
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    ended = reading => ended,
                    () = writing => return Err(fault::nonsense(operation, &"the input has no end")),
                }
            }
        };
        match ended {
            Ok(exit) => Ok(kept.output(exit, begun)),
            Err(Stopped::TimedOut) => {
                Err(timed_out(operation, timeout).with_partial(kept.partial(Some(true))))
            }
            Err(Stopped::TimedOutSilently) => {
                let ended = Control::pipes(self, pid).end_at_last().await;
                Err(timed_out(operation, timeout).with_partial(kept.partial(ended)))
            }
            Err(Stopped::Failed(error)) => Err(kept.failed(error)),
        }
    }
}

impl GuestClient {
    async fn read(
        &self,
        process: &mut Followed,
        kept: &mut Kept,
    ) -> std::result::Result<ProcessExit, Stopped> {
        let operation = self.operation(RUN);
        loop {
            match self.next_of(process, operation).await? {
                Said::Data(Channel::Stderr, bytes) => kept.stderr(&bytes),
                Said::Data(Channel::Stdout | Channel::Pty, bytes) => kept.stdout(&bytes),
                Said::End(exit) => return Ok(exit),
            }
        }
    }
}

/// Output, up to a limit.
pub(crate) struct Kept {
    stdout: BytesMut,
    stderr: BytesMut,
    limit: usize,
    truncated: bool,
}

impl Kept {
    pub(crate) fn new(limit: usize) -> Self {
        Self { stdout: BytesMut::new(), stderr: BytesMut::new(), limit, truncated: false }
    }

    pub(crate) fn stdout(&mut self, bytes: &Bytes) {
        self.truncated |= append(&mut self.stdout, bytes, self.limit);
    }

    pub(crate) fn stderr(&mut self, bytes: &Bytes) {
        self.truncated |= append(&mut self.stderr, bytes, self.limit);
    }

    /// What a command that ended leaves.
    pub(crate) fn output(self, exit: ProcessExit, begun: Instant) -> Output {
        Output {
            status: exit.status,
            cause: exit.cause,
            truncated: self.truncated,
            duration: begun.elapsed(),
            stdout: self.stdout.freeze(),
            stderr: self.stderr.freeze(),
        }
    }

    /// A line about the command on its standard error, beyond the limit, too.
    pub(crate) fn note(&mut self, line: &str) {
        if self.stderr.last().is_some_and(|last| *last != b'\n') {
            self.stderr.extend_from_slice(b"\n");
        }
        self.stderr.extend_from_slice(line.as_bytes());
    }

    /// The error of a command that nobody follows any more.
    pub(crate) fn failed(self, error: Error) -> Error {
        // Everything ends with its sandbox.
        let ended = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict).then_some(true);
        error.with_partial(self.partial(ended))
    }

    pub(crate) fn partial(self, ended: Option<bool>) -> PartialOutput {
        PartialOutput { stdout: self.stdout.freeze(), stderr: self.stderr.freeze(), ended }
    }
}

/// Keeps what fits; `true` means that something did not.
fn append(kept: &mut BytesMut, bytes: &[u8], limit: usize) -> bool {
    let fits = limit.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(&bytes[..fits]);
    fits < bytes.len()
}

impl GuestClient {
    fn shell_answer(&self, error: &RpcError, begun: Instant) -> Result<Output> {
        shell_answer(error, begun).ok_or_else(|| self.start_fault(self.operation(RUN), error))
    }
}

/// A program that could not be started, as a shell tells it; other refusals are errors.
pub(crate) fn shell_answer(error: &RpcError, begun: Instant) -> Option<Output> {
    let code = match error.reason.as_deref() {
        Some(reason::PROGRAM_NOT_FOUND) => NOT_FOUND,
        Some(reason::PROGRAM_NOT_EXECUTABLE) => NOT_EXECUTABLE,
        _ => return None,
    };
    Some(Output {
        status: ExitStatus::Code(code),
        stdout: Bytes::new(),
        stderr: Bytes::from(format!("{}\n", error.message)),
        truncated: false,
        cause: None,
        duration: begun.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use sandbar_wire::envd::Code;

    use super::*;

    #[test]
    fn output_is_kept_up_to_the_limit() {
        let mut kept = Kept::new(4);
        kept.stdout(&Bytes::from_static(b"abc"));
        assert!(!kept.truncated);
        kept.stdout(&Bytes::from_static(b"de"));
        kept.stderr(&Bytes::from_static(b"xyz!"));
        assert!(kept.truncated);
        let partial = kept.partial(None);
        assert_eq!((&partial.stdout[..], &partial.stderr[..]), (&b"abcd"[..], &b"xyz!"[..]));
    }

    #[test]
    fn a_shell_would_say_the_same() {
        let refusal = |why| RpcError::new(Code::InvalidArgument, "no such program").with_reason(why);
        let output = shell_answer(&refusal(reason::PROGRAM_NOT_FOUND), Instant::now()).unwrap();
        assert_eq!((output.status, &output.stderr[..]), (ExitStatus::Code(127), &b"no such program\n"[..]));
        let output = shell_answer(&refusal(reason::PROGRAM_NOT_EXECUTABLE), Instant::now()).unwrap();
        assert_eq!(output.status, ExitStatus::Code(126));
        assert!(shell_answer(&refusal(reason::BAD_CWD), Instant::now()).is_none());
    }
}
