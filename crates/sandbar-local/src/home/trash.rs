use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat};
use sandbar_core::SandboxId;
use sandbar_engine::IdMode;

use super::folder::place;
use super::{Folder, Home};
use crate::error::found;

impl Home {
    /// Takes the folder of a sandbox away from readers, in one step.
    pub(crate) fn trash(&self, folder: &Folder) -> rustix::io::Result<()> {
        found(renameat(self, place(folder.id()), self, trash_place(folder.id()))).map(|_| ())
    }

    /// Deletes what is in the trash of `id`.
    pub(crate) fn empty_trash(&self, id: &SandboxId, mode: &IdMode) -> std::io::Result<()> {
        self.remove_tree("trash", id.as_str(), mode)
    }

    /// Deletes `name` in one of the folders, with all that is in it.
    pub(crate) fn remove_tree(&self, folder: &str, name: &str, mode: &IdMode) -> std::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Some(folder) = found(openat(self, folder, flags, Mode::empty()))? else { return Ok(()) };
        sandbar_engine::remove_tree(folder.as_fd(), OsStr::new(name), mode).map_err(std::io::Error::other)
    }

    /// What is in the trash.
    pub(crate) fn trashed(&self) -> rustix::io::Result<Vec<SandboxId>> {
        Ok(self.entries("trash")?.into_iter().filter_map(|name| SandboxId::new(name).ok()).collect())
    }

    /// Whether the folder of `id` is in the trash.
    pub(crate) fn is_trashed(&self, id: &SandboxId) -> rustix::io::Result<bool> {
        Ok(found(statat(self, trash_place(id), AtFlags::SYMLINK_NOFOLLOW))?.is_some())
    }

    /// Opens the trash of `id`.
    pub(crate) fn open_trash(&self, id: &SandboxId) -> rustix::io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        found(openat(self, trash_place(id), flags, Mode::empty()))
    }

    /// Where the trash of `id` is, for messages.
    pub(crate) fn trash_path(&self, id: &SandboxId) -> std::path::PathBuf {
        self.path().join(trash_place(id))
    }
}

fn trash_place(id: &SandboxId) -> String {
    format!("trash/{id}")
}
