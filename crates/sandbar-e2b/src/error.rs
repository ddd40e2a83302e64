//! Errors that several places say in the same words.

use sandbar_core::{Error, SandboxId, State};

use crate::config::BACKEND;

/// A sandbox that positively does not exist.
pub(crate) fn absent(operation: &'static str, id: &SandboxId) -> Error {
    Error::not_found(operation, format!("sandbox `{id}`")).with_backend(BACKEND)
}

/// A sandbox that sleeps, and the way out.
pub(crate) fn asleep(operation: &'static str, id: &SandboxId) -> Error {
    Error::conflict(operation, State::Sleeping, format!("sandbox `{id}` is sleeping"))
        .with_backend(BACKEND)
        .with_resource(format!("sandbox `{id}`"))
        .with_hint("wake it first")
}

/// A look at a sandbox that failed: nothing is known of it, least of all that it is gone.
pub(crate) fn unknown_state(operation: &'static str, id: &SandboxId, cause: Error) -> Error {
    let message =
        format!("the state of sandbox `{id}` is unknown, and it may still be running: {}", cause.message());
    let mut error = Error::new(cause.kind(), operation, message)
        .with_backend(BACKEND)
        .with_resource(format!("sandbox `{id}`"))
        .with_retry(cause.retry());
    if let Some(hint) = cause.hint() {
        error = error.with_hint(hint);
    }
    error.with_source(cause)
}
