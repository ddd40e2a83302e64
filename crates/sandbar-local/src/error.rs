//! The one place where failures of this backend become errors of the contract.

use std::io;
use std::time::Duration;

use sandbar_core::{Error, ErrorKind, Result, Retry, State};
use serde::{Deserialize, Serialize};

use crate::config::BACKEND;

/// The result of a lookup that may find nothing.
pub(crate) type Lookup<T> = Result<Option<T>>;

/// An error of this backend.
pub(crate) fn fail(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Error {
    Error::new(kind, operation, message).with_backend(BACKEND)
}

/// A failed system call on `resource` in `operation`.
pub(crate) fn io_error(operation: &'static str, resource: &str, cause: impl Into<io::Error>) -> Error {
    let cause = cause.into();
    let error = fail(kind_of(&cause), operation, format!("{resource}: {cause}"));
    let hint = match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("free some disk space, or give `SANDBAR_HOME` another place")
        }
        io::ErrorKind::FileTooLarge => Some("raise this process' limit on file sizes (`ulimit -f`)"),
        _ if is_out_of_descriptors(&cause) => Some("raise this process' limit on open files (`ulimit -n`)"),
        _ => None,
    };
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
    .with_source(cause)
}

fn kind_of(cause: &io::Error) -> ErrorKind {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorKind::LimitExceeded
        }
        io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Config,
        io::ErrorKind::TimedOut => ErrorKind::Timeout,
        _ if is_out_of_descriptors(cause) => ErrorKind::LimitExceeded,
        _ => ErrorKind::Unexpected,
    }
}

/// The caller's own limit, or the machine's.
fn is_out_of_descriptors(cause: &io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(cause).is_some_and(|errno| errno == Errno::MFILE || errno == Errno::NFILE)
}

/// A lookup that gave no answer: the sandbox may be there and may run.
pub(crate) fn unknown(operation: &'static str, id: &str, why: impl std::fmt::Display) -> Error {
    fail(ErrorKind::Unavailable, operation, format!("the state of sandbox `{id}` is unknown: {why}"))
        .with_resource(format!("sandbox `{id}`"))
}

/// The sandbox positively does not exist.
pub(crate) fn gone(operation: &'static str, id: &str) -> Error {
    Error::not_found(operation, format!("sandbox `{id}`")).with_backend(BACKEND)
}

/// The sandbox exists and does not run.
pub(crate) fn not_running(operation: &'static str, id: &str, state: State, reason: Option<&str>) -> Error {
    let why = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let error = Error::conflict(operation, state, format!("sandbox `{id}` is {state}{why}"))
        .with_backend(BACKEND)
        .with_resource(format!("sandbox `{id}`"));
    match state {
        State::Sleeping => error.with_hint(format!("`sandbar resume {id}` wakes it")),
        State::Destroying => error.with_hint("make a new one: this one is on its way out"),
        State::Creating => error.with_hint("wait until it runs").with_retry(Retry::Safe),
        _ => error.with_hint(format!(
            "its processes are gone and its files are there: `sandbar resume {id}` starts it again"
        )),
    }
}

/// All its processes stand still for a copy, for longer than somebody waits.
pub(crate) fn held(operation: &'static str, id: &str, state: State, waited: Duration) -> Error {
    let why = format!("sandbox `{id}` stands still for a copy of it (a fork or a commit)");
    in_use(operation, id, state, &why, waited)
}

/// Somebody else does something with it that is to be done alone.
pub(crate) fn busy(operation: &'static str, id: &str, state: State, waited: Duration) -> Error {
    let why = format!("somebody else copies sandbox `{id}`, puts it to sleep or wakes it");
    in_use(operation, id, state, &why, waited)
}

fn in_use(operation: &'static str, id: &str, state: State, why: &str, waited: Duration) -> Error {
    Error::conflict(operation, state, format!("{why}, for more than {} s", waited.as_secs()))
        .with_backend(BACKEND)
        .with_resource(format!("sandbox `{id}`"))
        .with_hint("try again once that is done; nothing was changed")
        .with_retry(Retry::Safe)
}

/// A step of the engine that did not work.
pub(crate) fn engine(operation: &'static str, cause: sandbar_engine::Error) -> Error {
    let kind = cause.errno().map_or(ErrorKind::Config, |number| {
        match kind_of(&io::Error::from_raw_os_error(number)) {
            ErrorKind::Unexpected | ErrorKind::PermissionDenied => ErrorKind::Config,
            other => other,
        }
    });
    engine_as(kind, operation, cause)
}

/// As [`engine`], of a kind that the caller knows better.
pub(crate) fn engine_as(kind: ErrorKind, operation: &'static str, cause: sandbar_engine::Error) -> Error {
    let text = cause.to_string();
    // The hint has a place of its own.
    let (text, hint) = match cause.hint() {
        Some(hint) => {
            (text.strip_suffix(&format!(" ({hint})")).unwrap_or(&text).to_owned(), Some(hint.to_owned()))
        }
        None => (text, None),
    };
    let error = fail(kind, operation, text).with_source(cause);
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// An error on its way from a shim to the process that asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ErrorForm {
    kind: String,
    operation: String,
    message: String,
    #[serde(default)]
    resource: Option<String>,
    #[serde(default)]
    hint: Option<String>,
    #[serde(default)]
    feature: Option<String>,
    #[serde(default)]
    state: Option<State>,
    #[serde(default)]
    retry: String,
    #[serde(default)]
    left_behind: Vec<String>,
}

impl From<&Error> for ErrorForm {
    fn from(error: &Error) -> Self {
        Self {
            kind: kind_name(error.kind()).to_owned(),
            operation: error.operation().to_owned(),
            message: error.message().to_owned(),
            resource: error.resource().map(str::to_owned),
            hint: error.hint().map(str::to_owned),
            feature: error.feature().map(str::to_owned),
            state: error.state(),
            retry: match error.retry() {
                Retry::Safe | Retry::After(_) => "safe",
                Retry::OutcomeUnknown => "outcome_unknown",
                Retry::Never => "never",
            }
            .to_owned(),
            left_behind: error.left_behind().to_vec(),
        }
    }
}

impl ErrorForm {
    /// The error, as one of `operation`.
    pub(crate) fn into_error(self, operation: &'static str) -> Error {
        let kind =
            KINDS.iter().find(|(name, _)| *name == self.kind).map_or(ErrorKind::Unexpected, |entry| entry.1);
        let mut error = match (kind, self.feature, self.state) {
            (ErrorKind::Unsupported, Some(feature), _) => {
                let prefix = format!("{feature} is not supported: ");
                let why = self.message.strip_prefix(&prefix).unwrap_or(&self.message).to_owned();
                Error::unsupported(operation, feature, why)
            }
            (ErrorKind::Conflict, _, Some(state)) => Error::conflict(operation, state, self.message),
            _ => Error::new(kind, operation, self.message),
        }
        .with_backend(BACKEND)
        .with_retry(match self.retry.as_str() {
            "safe" => Retry::Safe,
            "outcome_unknown" => Retry::OutcomeUnknown,
            _ => Retry::Never,
        });
        if let Some(resource) = self.resource {
            error = error.with_resource(resource);
        }
        if let Some(hint) = self.hint {
            error = error.with_hint(hint);
        }
        for left in self.left_behind {
            error = error.with_left_behind(left);
        }
        error
    }
}

const KINDS: &[(&str, ErrorKind)] = &[
    ("invalid_input", ErrorKind::InvalidInput),
    ("unsupported", ErrorKind::Unsupported),
    ("unauthenticated", ErrorKind::Unauthenticated),
    ("permission_denied", ErrorKind::PermissionDenied),
    ("not_found", ErrorKind::NotFound),
    ("already_exists", ErrorKind::AlreadyExists),
    ("conflict", ErrorKind::Conflict),
    ("limit_exceeded", ErrorKind::LimitExceeded),
    ("timeout", ErrorKind::Timeout),
    ("unavailable", ErrorKind::Unavailable),
    ("protocol", ErrorKind::Protocol),
    ("config", ErrorKind::Config),
    ("unexpected", ErrorKind::Unexpected),
];

fn kind_name(kind: ErrorKind) -> &'static str {
    KINDS.iter().find(|(_, known)| *known == kind).map_or("unexpected", |entry| entry.0)
}

/// Turns "was it there?" answers of the file system into the contract's words.
pub(crate) fn found<T>(result: rustix::io::Result<T>) -> rustix::io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(cause) => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_crosses_a_pipe_whole() {
        let error = Error::unsupported("create", "enforced disk limit", "nothing keeps it here")
            .with_hint("leave it out")
            .with_left_behind("cgroup `x`")
            .with_retry(Retry::Safe);
        let text = serde_json::to_string(&ErrorForm::from(&error)).unwrap();
        let back = serde_json::from_str::<ErrorForm>(&text).unwrap().into_error("create");
        assert_eq!(back.to_string(), error.to_string());
        assert_eq!(
            (back.kind(), back.retry(), back.feature()),
            (error.kind(), error.retry(), error.feature())
        );
        assert_eq!((back.hint(), back.left_behind()), (error.hint(), error.left_behind()));
    }

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        for (name, kind) in KINDS {
            assert_eq!(kind_name(*kind), *name);
        }
    }

    #[test]
    fn a_full_disk_says_so_with_a_remedy() {
        let error = io_error("create", "`record.json`", rustix::io::Errno::NOSPC);
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        assert!(error.hint().unwrap().contains("disk space"));
    }
}
