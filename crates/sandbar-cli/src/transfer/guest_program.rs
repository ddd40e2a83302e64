use std::ffi::OsString;
use std::future::Future;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use futures::StreamExt;
use sandbar::{
    Command, Error, ErrorKind, ExitStatus, GuestPath, Process, ProcessEvent, Sandbox, SandboxExt, Signal,
    SpawnOptions, StdinMode, UserName,
};
use tokio::time::timeout;

use crate::transfer::{STALL, copy_error};

/// Bytes kept of what a program says on standard error.
const MAX_COMPLAINT: usize = 1024;

/// `tar` or `cat`, running in a sandbox. Ended when it is dropped before it was waited for: by whoever owns the sandbox, or because its pipes break.
pub(super) struct GuestProgram {
    name: &'static str,
    process: Process,
    complaint: Vec<u8>,
    status: Option<ExitStatus>,
}

/// How to run it.
pub(super) struct ProgramOptions {
    pub(super) name: &'static str,
    pub(super) arguments: Vec<OsString>,
    pub(super) folder: GuestPath,
    pub(super) user: Option<UserName>,
    pub(super) stdin: StdinMode,
}

impl GuestProgram {
    pub(super) async fn start(sandbox: &dyn Sandbox, options: ProgramOptions) -> Result<Self, Error> {
        let ProgramOptions { name, arguments, folder, user, stdin } = options;
        let command = Command::new(name).args(arguments);
        let spawn = SpawnOptions { cwd: Some(folder), user, stdin, ..SpawnOptions::new() };
        let process = bounded(sandbox.require_processes()?.spawn(&command, spawn)).await?;
        let process = process.map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => error.with_hint(format!(
                "files are copied with the sandbox's own `{name}`: use a template that has it"
            )),
            _ => error,
        })?;
        Ok(Self { name, process, complaint: Vec::new(), status: None })
    }

    /// Gives it bytes to read. An error here is best explained by [`GuestProgram::end`].
    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        bounded(self.process.control.write(bytes)).await?
    }

    /// Gives it all its input: names, each ended by a zero byte.
    pub(super) async fn write_names(&mut self, names: &[OsString]) -> Result<(), Error> {
        let names = names.iter().flat_map(|name| name.as_bytes().iter().copied().chain([0]));
        self.write(names.collect()).await?;
        self.close().await
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
                Err(copy_error(what, format!("`{}` in the sandbox ended with {status}: {first}", self.name)))
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
