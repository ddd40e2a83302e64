use std::sync::{Mutex, PoisonError};

use crate::{Error, ErrorKind, Result, Retry};

/// A failure that a test asks for, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The next lookup of a sandbox (`get`, `describe`, a handle's `record`) can't be made.
    Lookup,
    /// The next listing of sandboxes breaks after its first record.
    Listing,
    /// The next create breaks when half of it is done.
    Create,
    /// The next destroy can't be made.
    Destroy,
    /// The next lookup or listing of volumes can't be made.
    Volumes,
    /// The next lookup or listing of templates can't be made.
    Templates,
    /// The next `stat` of a file can't be made.
    Stat,
    /// How the next command ends is not learned.
    Exit,
}

/// The failures that are still to come.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    pub(super) fn arm(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    /// Whether `fault` was asked for; asks no more.
    pub(super) fn take(&self, fault: Fault) -> bool {
        let mut armed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        armed.iter().position(|one| *one == fault).map(|at| armed.remove(at)).is_some()
    }

    /// Fails if `fault` was asked for.
    pub(super) fn check(&self, fault: Fault, operation: &'static str, what: &str) -> Result<()> {
        if self.take(fault) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                operation,
                format!("the lookup failed, the state of {what} is unknown: it may still exist"),
            )
            .with_backend(super::world::BACKEND)
            .with_retry(Retry::Safe)
            .with_source("injected failure"));
        }
        Ok(())
    }
}
