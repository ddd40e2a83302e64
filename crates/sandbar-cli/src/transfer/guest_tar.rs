use std::future::Future;

use bytes::Bytes;
use futures::StreamExt;
use sandbar::{
    Command, Error, ErrorKind, ExitStatus, GuestPath, Process, ProcessEvent, Sandbox, SandboxExt, Signal,
    SpawnOptions, StdinMode, UserName,
};
use tokio::time::timeout;

use crate::transfer::{STALL, copy_error};

/// Bytes kept of what `tar` says on standard error.
const MAX_COMPLAINT: usize = 1024;

/// `tar`, running in a sandbox. Ended when it is dropped before it was waited for: by whoever owns the sandbox, or because its pipes break.
pub(super) struct GuestTar {
    process: Process,
    complaint: Vec<u8>,
    status: Option<ExitStatus>,
}

/// How to run it.
pub(super) struct TarOptions {
    pub(super) arguments: Vec<std::ffi::OsString>,
    pub(super) folder: GuestPath,
    pub(super) user: Option<UserName>,
    pub(super) stdin: StdinMode,
}

impl GuestTar {
    pub(super) async fn start(sandbox: &dyn Sandbox, options: TarOptions) -> Result<Self, Error> {
        let command = Command::new("tar").args(options.arguments);
        let spawn = SpawnOptions {
            cwd: Some(options.folder),
            user: options.user,
            stdin: options.stdin,
            ..SpawnOptions::new()
        };
        let process = bounded(sandbox.require_processes()?.spawn(&command, spawn)).await?;
        let process = process.map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => {
                error.with_hint("files are copied with the sandbox's own `tar`: use a template that has it")
            }
            _ => error,
        })?;
        Ok(Self { process, complaint: Vec::new(), status: None })
    }

    /// Gives it bytes to read. An error here is best explained by [`GuestTar::end`].
    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        bounded(self.process.control.write(bytes)).await?
    }

    pub(super) async fn close(&mut self) -> Result<(), Error> {
        bounded(self.process.control.close_stdin()).await?
    }

    /// The next bytes that it wrote; `None` once it ended.
    pub(super) async fn read(&mut self) -> Result<Option<Bytes>, Error> {
        while self.status.is_none() {
            match bounded(self.process.events.next()).await? {
                Some(Ok(ProcessEvent::Stdout(bytes))) => return Ok(Some(bytes)),
                Some(Ok(ProcessEvent::Stderr(bytes))) => {
                    let room = MAX_COMPLAINT.saturating_sub(self.complaint.len());
                    self.complaint.extend_from_slice(&bytes[..bytes.len().min(room)]);
                }
                Some(Ok(ProcessEvent::Exit(exit))) => self.status = Some(exit.status),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => self.status = Some(ExitStatus::Unknown),
            }
        }
        Ok(None)
    }

    /// Waits for its end, which has to be a success.
    pub(super) async fn end(&mut self, what: &str) -> Result<(), Error> {
        while self.read().await?.is_some() {}
        match self.status {
            Some(status) if status.is_success() => Ok(()),
            status => {
                let status = status.unwrap_or(ExitStatus::Unknown);
                let complaint = String::from_utf8_lossy(&self.complaint);
                let first = complaint.lines().next().unwrap_or("it said nothing");
                Err(copy_error(what, format!("`tar` in the sandbox ended with {status}: {first}")))
            }
        }
    }

    /// Ends it, wanted or not.
    pub(super) async fn kill(&mut self) {
        if self.status.is_none() {
            // If it can't be reached, its pipes are broken, and that ends it as well.
            let _ = bounded(self.process.control.signal(Signal::KILL)).await;
        }
    }
}

/// What does not come within [`STALL`] is an error.
pub(super) async fn bounded<T>(work: impl Future<Output = T>) -> Result<T, Error> {
    timeout(STALL, work).await.map_err(|_| {
        Error::new(
            ErrorKind::Timeout,
            "copy",
            format!("the sandbox neither took nor sent anything for {} seconds", STALL.as_secs()),
        )
    })
}
