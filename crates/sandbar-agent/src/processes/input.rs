use std::io;
use std::os::fd::OwnedFd;

use sandbar_engine::process::resize;
use sandbar_wire::envd::{Code, ProcessInput, Pty, RpcError};
use tokio::io::unix::AsyncFd;

use super::Process;
use super::start::character_count;

impl Process {
    /// Writes input and returns once the process's pipe or terminal has taken all of it.
    pub(crate) async fn input(&self, input: ProcessInput) -> Result<(), RpcError> {
        match (input.stdin, input.pty) {
            (Some(bytes), None) => {
                if self.pty.is_some() {
                    return Err(RpcError::new(
                        Code::Internal,
                        "error writing to stdin: the process has a tty",
                    ));
                }
                let stdin = self.stdin.lock().await;
                let Some(stdin) = &*stdin else {
                    let text = "error writing to stdin: stdin not enabled or closed";
                    return Err(RpcError::new(Code::Internal, text));
                };
                self.write(stdin, &bytes, "stdin").await
            }
            (None, Some(bytes)) => {
                let Some(pty) = &self.pty else {
                    return Err(RpcError::new(
                        Code::Internal,
                        "error writing to tty: tty not assigned to process",
                    ));
                };
                // The lock of standard input, unused here, keeps inputs whole.
                let _order = self.stdin.lock().await;
                self.write(pty, &bytes, "tty").await
            }
            _ => Err(RpcError::new(Code::InvalidArgument, "input has neither `stdin` nor `pty`, or both")),
        }
    }

    /// Ends standard input. Closing it twice is no error.
    pub(crate) async fn close_stdin(&self) -> Result<(), RpcError> {
        if self.pty.is_some() {
            return Err(RpcError::new(
                Code::Unknown,
                "stdin of a process with a tty can't be closed; send ^D",
            ));
        }
        self.stdin.lock().await.take();
        Ok(())
    }

    /// Resizes the terminal.
    pub(crate) fn update(&self, pty: Option<Pty>) -> Result<(), RpcError> {
        let Some(terminal) = &self.pty else {
            return Err(RpcError::new(Code::Internal, "tty not assigned to process"));
        };
        let Some(size) = pty.and_then(|pty| pty.size) else { return Ok(()) };
        let (cols, rows) = (character_count(size.cols)?, character_count(size.rows)?);
        resize(terminal.get_ref(), cols, rows)
            .map_err(|error| RpcError::new(Code::Internal, format!("resize the tty: {error}")))
    }

    /// A process that doesn't read makes the writer wait; its end stops the wait.
    async fn write(&self, target: &AsyncFd<OwnedFd>, mut bytes: &[u8], name: &str) -> Result<(), RpcError> {
        while !bytes.is_empty() {
            let ended = self.exit_changed.notified();
            let failed = |error: &dyn std::fmt::Display| {
                RpcError::new(Code::Internal, format!("error writing to {name}: {error}"))
            };
            let mut ready = tokio::select! {
                biased;
                ready = target.writable() => ready.map_err(|error| failed(&error))?,
                () = ended => {
                    if self.exited_at().is_some() {
                        return Err(failed(&"the process has ended"));
                    }
                    continue;
                }
            };
            match ready.try_io(|target| Ok::<_, io::Error>(rustix::io::write(target.get_ref(), bytes)?)) {
                Ok(Ok(count)) => bytes = &bytes[count..],
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(failed(&error)),
                Err(_would_block) => {}
            }
        }
        Ok(())
    }
}
