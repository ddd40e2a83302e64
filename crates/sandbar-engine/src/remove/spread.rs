use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType};

use super::walk;
use crate::subvolume;

/// Threads that remove at the same time. They wait for the file system more than they work: one that discards blocks as they are given back waits for
/// the disk at each.
const THREADS: usize = 4;
/// Folders of a level that are looked into: the layers of a sandbox are four.
const MOST: usize = 16;

/// Removes what lies two levels below `name` in several threads, as far as it can be. What is left, and everything above it, is left to a walk of
/// everything, which also tells what can't be removed.
pub(super) fn remove_below(parent: BorrowedFd<'_>, name: &CStr) {
    let mut work: Vec<(OwnedFd, CString)> = Vec::new();
    for (top, name) in folders_in(parent, name) {
        for (folder, name) in folders_in(top.as_fd(), &name) {
            work.push((folder, name));
        }
    }
    // One alone is as fast in the walk.
    if work.len() < 2 {
        return;
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let remove = || {
        while let Some((folder, name)) = work.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            walk::remove(folder.as_fd(), name);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..THREADS.min(work.len()) {
            // Where no thread can be had, this one does it all.
            let _ = std::thread::Builder::new().spawn_scoped(scope, remove);
        }
        remove();
    });
}

/// The folders in `name`, each with a descriptor of `name` itself; none where it is no folder or can't be read.
fn folders_in(parent: BorrowedFd<'_>, name: &CStr) -> Vec<(OwnedFd, CString)> {
    let Ok(folder) = walk::open_folder(parent, name) else { return Vec::new() };
    if subvolume::destroy(parent, name, folder.as_fd()) {
        return Vec::new();
    }
    let Ok(entries) = Dir::read_from(&folder) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type() == FileType::Directory)
        .filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
        .filter_map(|entry| Some((folder.try_clone().ok()?, entry.file_name().to_owned())))
        .take(MOST)
        .collect()
}
