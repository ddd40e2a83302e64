use std::io;

use sandbar::{Error, ErrorKind, SandboxId};

use crate::exit::ExitStatus;

/// The library's word for the start of a process.
const STARTS: &str = "spawn";

/// Why an invocation did not do what it was asked: the error for a person, and the code for a script.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: ExitStatus,
    /// `None` where there is nobody left to read it.
    pub(crate) error: Option<Error>,
    /// The sandbox that is there all the same, as was asked for.
    pub(crate) kept: Option<SandboxId>,
}

impl Failure {
    /// What was typed makes no sense. Nothing was done.
    pub(crate) fn usage(error: Error) -> Self {
        Self::new(ExitStatus::Usage, error)
    }

    pub(crate) fn new(status: ExitStatus, error: Error) -> Self {
        Self { status, error: Some(error), kept: None }
    }

    pub(crate) fn with_kept(mut self, id: SandboxId) -> Self {
        self.kept = Some(id);
        self
    }

    /// Tells of the start of a process as of the command that asked for it: nobody typed `spawn`.
    pub(crate) fn in_words_of(self, typed: Option<&'static str>) -> Self {
        let told = |error: Error| match typed {
            Some(typed) if error.operation() == STARTS => error.with_operation(typed),
            _ => error,
        };
        Self { error: self.error.map(told), ..self }
    }

    /// Names what could not be removed.
    pub(crate) fn with_left_behind(self, what: String) -> Self {
        Self { error: self.error.map(|error| error.with_left_behind(what)), ..self }
    }

    /// Reading our own input failed.
    pub(crate) fn input(error: io::Error) -> Self {
        let message = format!("standard input can't be read: {error}");
        Error::new(ErrorKind::Unexpected, "read input", message).with_source(error).into()
    }

    /// Writing our own output failed.
    pub(crate) fn output(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { status: ExitStatus::ReaderGone, error: None, kept: None };
        }
        let message = format!("standard output can't be written: {error}");
        let hint = match error.kind() {
            io::ErrorKind::FileTooLarge => Some("raise this process' limit on file sizes (`ulimit -f`)"),
            _ => None,
        };
        let told = Error::new(ErrorKind::Unexpected, "write output", message).with_source(error);
        match hint {
            Some(hint) => told.with_hint(hint),
            None => told,
        }
        .into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(ExitStatus::Failed, error)
    }
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;
