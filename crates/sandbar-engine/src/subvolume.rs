//! Subvolumes of btrfs: trees with a top of their own, of which a snapshot takes no longer for many bytes than for few.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{fstat, fstatfs};
use rustix::io::Errno;

use crate::sys;

/// `BTRFS_SUPER_MAGIC` of `linux/magic.h`.
const BTRFS: u64 = 0x9123_683e;
/// The inode of a subvolume's top folder, `BTRFS_FIRST_FREE_OBJECTID` of `linux/btrfs_tree.h`: nothing else has it.
pub(crate) const TOP: u64 = 256;

/// Whether what `file` names lies on btrfs.
pub fn is_on_btrfs(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(u64::try_from(fstatfs(file)?.f_type).is_ok_and(|kind| kind == BTRFS))
}

/// Whether an opened folder is the top of a subvolume.
pub fn is_subvolume(folder: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(fstat(folder)?.st_ino == TOP && is_on_btrfs(folder)?)
}

/// Makes an empty subvolume `name` in `parent`, where that is on btrfs; `false` means that none can be made there. A name that is taken is
/// [`Errno::EXIST`]. The umask decides on its mode.
pub(crate) fn create(parent: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    if !is_on_btrfs(parent)? {
        return Ok(false);
    }
    match sys::subvolume_create(parent, name) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Err(Errno::EXIST),
        // A folder does as well, and tells by its own failure what is wrong.
        Err(_) => Ok(false),
    }
}

/// Makes `name` in `parent` a snapshot of the subvolume whose top `source` is: of all that was written to it by now, whether it is on the disk yet or
/// not. Whoever owns the top may do so. It can be written to, and removed by [`remove_tree`](crate::remove_tree).
pub fn snapshot(source: BorrowedFd<'_>, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    sys::subvolume_snapshot(source, parent, name)
}

/// Removes `name` in `parent`, opened as `folder`, at once if it is a subvolume and the caller may; else nothing is done, and a walk removes it as any
/// tree: root may always, others where it is mounted with `user_subvol_rm_allowed`. Allocates nothing.
pub(crate) fn destroy(parent: BorrowedFd<'_>, name: &CStr, folder: BorrowedFd<'_>) -> bool {
    is_subvolume(folder).unwrap_or(false) && sys::subvolume_destroy(parent, name).is_ok()
}
