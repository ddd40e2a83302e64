//! A tree as an archive.

mod attributes;
mod encode;
mod links;
mod walk;

use std::io::{BufWriter, Write};
use std::os::fd::BorrowedFd;

use crate::hooks::Hooks;
use crate::pack::walk::Walk;
use crate::read::BLOCK;
use crate::{ArchiveError, Progress};

/// What is read and written at once, in bytes.
const CHUNK: usize = 64 * 1024;

/// Packs one tree.
///
/// The order is by name, so that the same tree gives the same archive. Long names, large numbers and parts of a second are in POSIX' form (pax). The end marker is
/// written only when everything before it was: a reader that demands it never takes a part for the whole.
#[derive(Debug, Default)]
pub struct Pack<'a> {
    owners: PackOwners,
    hooks: Hooks<'a>,
}

/// Whose the members are in the archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackOwners {
    /// Owner and group 0, without names: whoever unpacks decides. Rights without set-user-id, set-group-id and sticky bits, which root would give to root's
    /// files by unpacking.
    #[default]
    Zero,
    /// The numbers that the files have, and all of their rights.
    AsIs,
}

impl PackOwners {
    /// The bits of a mode that pass.
    fn rights(self) -> u32 {
        match self {
            Self::Zero => 0o777,
            Self::AsIs => 0o7777,
        }
    }
}

/// What was packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackReport {
    /// Members.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Sockets, pipes and devices that were left out.
    pub skipped: u64,
    /// Files that grew while they were read: what was announced is what is there. One that became shorter is an error.
    pub changed: u64,
    /// Entries that were gone before they were read.
    pub vanished: u64,
    /// Further names of a file that are packed as files of their own, as there were too many to remember.
    pub copied: u64,
}

impl<'a> Pack<'a> {
    /// With owners left out.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whose the members are.
    pub fn with_owners(mut self, owners: PackOwners) -> Self {
        self.owners = owners;
        self
    }

    /// Is told how far it is, after each member and each block of content.
    pub fn with_progress(mut self, progress: &'a mut dyn FnMut(Progress)) -> Self {
        self.hooks.progress = Some(progress);
        self
    }

    /// Is asked between blocks whether to stop.
    pub fn with_cancelled(mut self, cancelled: &'a dyn Fn() -> bool) -> Self {
        self.hooks.cancelled = Some(cancelled);
        self
    }

    /// Packs `tree`, a folder or file that is open for reading or a symbolic link that is open as a path, under the name `root`. With an empty name, the members of a
    /// folder stand for themselves, after one for `./`.
    pub fn run(
        mut self,
        tree: BorrowedFd<'_>,
        root: &[u8],
        into: &mut dyn Write,
    ) -> Result<PackReport, ArchiveError> {
        let mut output = BufWriter::with_capacity(CHUNK, into);
        let report = Walk::new(self.owners, &mut self.hooks, &mut output).run(tree, root)?;
        let end = [0; 2 * BLOCK];
        output.write_all(&end).and_then(|()| output.flush()).map_err(written)?;
        Ok(report)
    }
}

pub(crate) fn written(error: std::io::Error) -> ArchiveError {
    ArchiveError::io("write the archive", error)
}
