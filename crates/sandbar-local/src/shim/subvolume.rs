//! Snapshots of what a sandbox wrote, where its writable layers lie in a subvolume.

use std::os::fd::{AsFd as _, OwnedFd};

use sandbar_core::Result;
use sandbar_engine::{IdMode, LAYERS_FOLDER, subvolume};

use crate::error::{found, io_error};
use crate::home::{Folder, Home};
use crate::store::{Staged, StoreIds};

const FORK: &str = "fork";
/// The name of a snapshot in the folder of a layer in the making: that of layers which were moved there as they were.
const NAME: &std::ffi::CStr = c"fs";
/// What of the machine's may wait to be written before a sandbox stands still, in bytes: a disk writes that in some milliseconds.
const MUCH: u64 = 32 << 20;

/// The beginning of a layer, with a snapshot of the writable layers as they are now; `None` where none can be taken of them, and they are to be copied.
pub(super) fn snapshot<'a>(home: &'a Home, folder: &Folder, ids: &StoreIds) -> Result<Option<Staged<'a>>> {
    let Some(written) = open(folder)? else { return Ok(None) };
    let staged = Staged::new(home, ids.clone())?;
    // A copy does as well, and tells by its own failure what is wrong.
    Ok(subvolume::snapshot(written.as_fd(), staged.dir().as_fd(), NAME).is_ok().then_some(staged))
}

/// Has what the sandbox wrote written to the disk while it goes on, where much waits for that: a snapshot waits for all of it, and the sandbox for the
/// snapshot. As root only: others may not remove a snapshot at once.
pub(super) fn write_early(home: &Home, folder: &Folder, ids: &IdMode) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let waiting = std::fs::read_to_string("/proc/meminfo").map(|text| waiting(&text)).unwrap_or_default();
    let Some(written) = open(folder)?.filter(|_| waiting > MUCH) else { return Ok(()) };
    // One that nobody uses: of this subvolume alone, where the file system's own call is for all that lie on it.
    let staged = Staged::new(home, StoreIds::of_sandbox(ids))?;
    subvolume::snapshot(written.as_fd(), staged.dir().as_fd(), NAME)
        .map_err(|cause| io_error(FORK, "what waits to be written", cause))
}

/// The folder of the writable layers, where it is the top of a subvolume.
fn open(folder: &Folder) -> Result<Option<OwnedFd>> {
    let broken = |cause| io_error(FORK, &format!("`{LAYERS_FOLDER}`"), cause);
    let Some(written) = found(folder.open_dir(LAYERS_FOLDER)).map_err(broken)? else { return Ok(None) };
    Ok(subvolume::is_subvolume(written.as_fd()).map_err(broken)?.then_some(written))
}

/// Bytes that wait to be written, by the kernel's own table.
fn waiting(table: &str) -> u64 {
    let kibibytes = |line: &str| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok();
    table
        .lines()
        .filter_map(|line| line.strip_prefix("Dirty:").or_else(|| line.strip_prefix("Writeback:")))
        .filter_map(kibibytes)
        .fold(0, |sum, next| sum.saturating_add(next.saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_summed_up() {
        let table =
            "MemFree: 5 kB\nDirty:             132 kB\nWriteback:           4 kB\nWritebackTmp:  9 kB\n";
        assert_eq!(waiting(table), 136 * 1024);
        assert_eq!(waiting(""), 0);
    }
}
