use std::fmt;

use crate::ArchiveError;

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Members so far.
    pub entries: u64,
    /// Bytes of content so far.
    pub bytes: u64,
}

/// What the caller wants to be told and asked between blocks.
#[derive(Default)]
pub(crate) struct Hooks<'a> {
    pub(crate) progress: Option<&'a mut dyn FnMut(Progress)>,
    pub(crate) cancelled: Option<&'a dyn Fn() -> bool>,
}

impl Hooks<'_> {
    pub(crate) fn tell(&mut self, progress: Progress) {
        if let Some(tell) = &mut self.progress {
            tell(progress);
        }
    }

    pub(crate) fn check(&self) -> Result<(), ArchiveError> {
        if self.cancelled.is_some_and(|cancelled| cancelled()) {
            return Err(ArchiveError::cancelled());
        }
        Ok(())
    }
}

impl fmt::Debug for Hooks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}
