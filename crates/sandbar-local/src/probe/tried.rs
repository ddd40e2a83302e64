use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tried {
    /// Which one.
    pub(crate) id: u32,
    /// How it went.
    pub(crate) outcome: Outcome,
    /// More, for a person.
    pub(crate) detail: String,
    /// How long it took.
    pub(crate) millis: u64,
}

/// How an attempt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// The far side answered, or the kernel gave what was asked for.
    Reached,
    /// It was refused, or nothing came back.
    Refused,
    /// It could not be tried, or says nothing.
    Unclear,
}

/// An outcome with what to say about it.
pub(super) type Said = (Outcome, String);

/// The outcome of a system call that failed: a refusal, or a want of our own that says nothing.
pub(super) fn failed(what: &str, cause: &io::Error) -> Said {
    let outcome = if is_want(cause) { Outcome::Unclear } else { Outcome::Refused };
    (outcome, format!("{what}: {}", name(cause)))
}

/// Whether a program that lacks something of its own was refused nothing.
fn is_want(cause: &io::Error) -> bool {
    let wants =
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN, Errno::INTR, Errno::BADF];
    // A timeout of a read is `EAGAIN` too; who waits looks for it first.
    Errno::from_io_error(cause).is_some_and(|errno| wants.contains(&errno))
}

/// The sentence of the error, without the words that only a program needs.
fn name(cause: &io::Error) -> String {
    let text = cause.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}
