//! Layers that a sandbox left as they were made, for the next one: making and removing folders is what takes longest on some file systems.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RenameFlags, openat, renameat_with};
use rustix::io::Errno;
use sandbar_engine::{IdMode, LAYERS_FOLDER, layers};

use super::open::POOL;
use super::{Folder, Home};
use crate::error::found;

/// Layers that are kept. A person who makes one sandbox after the other needs one or two; some more for several at once.
const KEPT: u32 = 8;

impl Home {
    /// Keeps the layers in `folder`, which is in the trash, if nothing was written to them; `false` means that they are still there, and to be removed.
    /// Every process of the sandbox has to be gone.
    pub(crate) fn keep_layers(&self, folder: &Folder, ids: &IdMode) -> rustix::io::Result<bool> {
        if !layers::are_untouched(folder.as_fd(), ids)? {
            return Ok(false);
        }
        let Some(pool) = self.pool()? else { return Ok(false) };
        for number in 0..KEPT {
            // A place that is taken stays as it is: the kernel decides who is first.
            match renameat_with(folder, LAYERS_FOLDER, &pool, number.to_string(), RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(true),
                Err(Errno::EXIST) => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(false)
    }

    /// Gives kept layers to `folder`, where there are any of its kind of ids; it makes its own otherwise.
    pub(crate) fn reuse_layers(&self, folder: &Folder, ids: &IdMode) -> std::io::Result<bool> {
        if matches!(ids, IdMode::Subordinate(_)) {
            return Ok(false);
        }
        let Some(pool) = self.pool()? else { return Ok(false) };
        for number in 0..KEPT {
            match renameat_with(&pool, number.to_string(), folder, LAYERS_FOLDER, RenameFlags::NOREPLACE) {
                Ok(()) => {}
                Err(Errno::NOENT) => continue,
                Err(cause) => return Err(cause.into()),
            }
            if layers::renew(folder.as_fd(), ids).unwrap_or(false) {
                return Ok(true);
            }
            // Of another kind of ids, or touched by somebody: nothing to build on.
            sandbar_engine::remove_tree(folder.as_fd(), OsStr::new(LAYERS_FOLDER), ids)
                .map_err(std::io::Error::other)?;
        }
        Ok(false)
    }

    fn pool(&self) -> rustix::io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        found(openat(self, POOL, flags, Mode::empty()))
    }
}
