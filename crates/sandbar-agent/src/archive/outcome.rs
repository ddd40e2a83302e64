use std::io;

use sandbar_archive::{ArchiveError, ErrorKind};
use sandbar_wire::envd::{ArchiveReport, HttpError};
use serde::{Deserialize, Serialize};

/// How the program ended, in its own words: one line of JSON on its standard error.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// It did all of it.
    Done(ArchiveReport),
    /// It did nothing of it, and left nothing.
    Failed(HttpError),
}

/// What an error of an archive is for a client.
#[expect(clippy::needless_pass_by_value, reason = "a function for `map_err`")]
pub(super) fn of_archive(error: ArchiveError) -> HttpError {
    let code = match error.kind() {
        ErrorKind::Malformed | ErrorKind::Truncated | ErrorKind::Refused => 400,
        ErrorKind::Limit => 413,
        ErrorKind::Io => {
            let source =
                std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
            source.map_or(500, code_of)
        }
        _ => 500,
    };
    HttpError::new(code, error.to_string())
}

/// The same of a call that failed while `doing` something.
pub(super) fn of_io(doing: impl std::fmt::Display, error: impl Into<io::Error>) -> HttpError {
    let error = error.into();
    HttpError::new(code_of(&error), format!("{doing}: {error}"))
}

fn code_of(error: &io::Error) -> u16 {
    match error.kind() {
        io::ErrorKind::NotFound => 404,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => 403,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => 507,
        io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidFilename
        | io::ErrorKind::InvalidInput => 400,
        _ => 500,
    }
}
