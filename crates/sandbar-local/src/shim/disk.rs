use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, fstatvfs, openat, statat};
use rustix::io::Errno;

use super::shared::Shared;
use crate::home::Folder;

/// The writable layers, below the engine's folder.
const LAYERS: &[&str] = &["upper", "usr-upper"];
/// Longest share of the time that goes into counting: one part in this many.
const REST: u32 = 20;
/// Without any news of the file system's, a count is made again after this long: what others delete hides what a sandbox writes.
const STALE: Duration = Duration::from_secs(30);
/// Entries that one count looks at, so that it ends; a tree with more is over any sensible limit of ours in memory alone.
const MAX_ENTRIES: u64 = 20_000_000;

/// Watches how much a sandbox has written. Counting a tree is dear, asking the file system for its free space is not: as long as the whole file
/// system grew by less than what the sandbox may still write, the sandbox is not above its limit.
#[derive(Debug, Default)]
pub(super) struct DiskWatch {
    last: Option<Count>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    bytes: u64,
    file_system: u64,
    at: Instant,
    took: Duration,
}

impl DiskWatch {
    /// How much it has written, if that is more than `limit`.
    pub(super) async fn exceeded(&mut self, shared: &Arc<Shared>, limit: u64) -> Option<u64> {
        let used = used(&shared.folder)?;
        if let Some(last) = &self.last
            && !is_due(last, used, limit)
        {
            return None;
        }
        let begun = Instant::now();
        let bytes = measure(shared).await?;
        self.last = Some(Count { bytes, file_system: used, at: begun, took: begun.elapsed() });
        (bytes > limit).then_some(bytes)
    }
}

/// Whether it is time to count again.
fn is_due(last: &Count, used: u64, limit: u64) -> bool {
    let since = last.at.elapsed();
    if since < last.took * REST {
        return false;
    }
    let may_still_write = limit.saturating_sub(last.bytes);
    let grew = used.saturating_sub(last.file_system);
    grew > may_still_write / 2 || (used != last.file_system && since >= STALE)
}

/// Bytes in use on the file system of the data folder.
fn used(folder: &Folder) -> Option<u64> {
    let stat = fstatvfs(folder).ok()?;
    Some(stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize))
}

/// Counts what the sandbox has written, in bytes on disk; `None` if it could not be counted.
pub(super) async fn measure(shared: &Arc<Shared>) -> Option<u64> {
    let shared = Arc::clone(shared);
    tokio::task::spawn_blocking(move || count_layers(&shared.folder).ok()).await.ok().flatten()
}

fn count_layers(folder: &Folder) -> rustix::io::Result<u64> {
    let layers = match folder.open_dir(sandbar_engine::LAYERS_FOLDER) {
        Ok(layers) => layers,
        Err(Errno::NOENT) => return Ok(0),
        Err(cause) => return Err(cause),
    };
    let mut bytes = 0;
    for layer in LAYERS {
        match open_below(layers.as_fd(), *layer) {
            Ok(dir) => bytes += count(dir)?,
            Err(Errno::NOENT) => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(bytes)
}

/// A folder on the way from the top to where the count is.
struct Level {
    /// Device and inode, to know the folder again on the way up.
    identity: (u64, u64),
    folders: Vec<CString>,
}

/// Counts a tree that its owner changes meanwhile, with one descriptor open however deep it is, and without following a link.
fn count(top: OwnedFd) -> rustix::io::Result<u64> {
    let mut bytes = 0;
    let mut entries = 0;
    let mut here = top;
    let mut levels = vec![read_level(&here, &mut bytes, &mut entries)?];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.folders.pop() {
            match open_below(here.as_fd(), &name) {
                Ok(below) => {
                    levels.push(read_level(&below, &mut bytes, &mut entries)?);
                    here = below;
                }
                // Gone since, or made something else, or closed to us (one id, mode 000).
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {}
                Err(cause) => return Err(cause),
            }
            continue;
        }
        levels.pop();
        let Some(parent) = levels.last() else { break };
        here = open_below(here.as_fd(), "..")?;
        if identity(&fstat(&here)?) != parent.identity {
            // It was moved under the count, which starts anew another time.
            return Err(Errno::STALE);
        }
    }
    Ok(bytes)
}

fn read_level(dir: &OwnedFd, bytes: &mut u64, entries: &mut u64) -> rustix::io::Result<Level> {
    let mut level = Level { identity: identity(&fstat(dir)?), folders: Vec::new() };
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        *entries += 1;
        if *entries > MAX_ENTRIES {
            return Err(Errno::TOOBIG);
        }
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(cause) => return Err(cause),
        };
        *bytes = bytes.saturating_add(on_disk(&stat));
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            level.folders.push(name.to_owned());
        }
    }
    Ok(level)
}

/// Bytes on disk; of a file with several names, the share of one, so that all names together are the file.
fn on_disk(stat: &Stat) -> u64 {
    let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let names = if is_dir { 1 } else { stat.st_nlink.max(1) };
    bytes / names
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn open_below(dir: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat(dir, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open(path: &std::path::Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    #[test]
    fn a_tree_is_counted_deep_and_links_are_not_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let big = scratch.path().join("big");
        fs::write(&big, vec![1; 3 << 20]).unwrap();
        let tree = scratch.path().join("tree");
        fs::create_dir(&tree).unwrap();
        assert!(count(open(&tree)).unwrap() < 64 << 10);
        std::os::unix::fs::symlink(scratch.path(), tree.join("out")).unwrap();
        let mut deep = tree.clone();
        for _ in 0..100 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        assert!(count(open(&tree)).unwrap() < 1 << 20, "what lies outside does not count");
        fs::write(deep.join("file"), vec![1; 2 << 20]).unwrap();
        fs::hard_link(deep.join("file"), tree.join("again")).unwrap();
        let bytes = count(open(&tree)).unwrap();
        assert!((2 << 20..3 << 20).contains(&bytes), "{bytes}");
    }

    #[test]
    fn counting_waits_until_the_limit_could_be_reached() {
        let last = Count {
            bytes: 100,
            file_system: 1000,
            at: Instant::now().checked_sub(Duration::from_secs(10)).unwrap(),
            took: Duration::from_millis(1),
        };
        assert!(!is_due(&last, 1000, 200), "nothing was written at all");
        assert!(!is_due(&last, 1040, 200));
        assert!(is_due(&last, 1060, 200));
        assert!(is_due(&last, 1001, 100), "at the limit, anything counts");
        let slow = Count { took: Duration::from_secs(1), ..last };
        assert!(!is_due(&slow, 9000, 200), "counting must not be all that is done");
        let old = Count { at: Instant::now().checked_sub(STALE).unwrap(), ..last };
        assert!(is_due(&old, 900, 10_000), "others deleted");
    }
}
