use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use sandbar_engine::IdMode;

use crate::error::found;
use crate::home::Home;

/// How long all that one call measures may take.
const ALL: Duration = Duration::from_secs(120);
/// How long it may take to measure one tree: some millions of files that are in the machine's memory.
const ONE: Duration = Duration::from_secs(20);

/// Measures trees, as long as there is time. What can't be measured is `None` and never 0; nothing that is kept grows with a tree.
#[derive(Debug)]
pub(super) struct Meter<'a> {
    home: &'a Home,
    end: Instant,
}

impl<'a> Meter<'a> {
    pub(super) fn new(home: &'a Home) -> Self {
        Self { home, end: Instant::now() + ALL }
    }

    /// Bytes on disk of what is at `place` in the data folder; 0 if it positively is not there.
    pub(super) fn tree(&self, place: &str, ids: &IdMode) -> Option<u64> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = |more| openat(self.home, place, flags | more, Mode::empty());
        // One that its owner inside closed to everybody is opened by who measures.
        let opened: rustix::io::Result<Option<OwnedFd>> =
            found(open(OFlags::RDONLY).or_else(|_| open(OFlags::PATH)));
        let Some(folder) = opened.ok()? else { return Some(0) };
        let left = self.end.saturating_duration_since(Instant::now()).min(ONE);
        if left.is_zero() {
            return None;
        }
        sandbar_engine::stored_size(folder.as_fd(), ids, left).ok().map(|size| size.bytes)
    }

    /// Bytes on disk of the files that lie in the folder at `place` itself, and how many they are.
    pub(super) fn files(&self, place: &str) -> Option<(u64, u64)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = found(openat(self.home, place, flags, Mode::empty())).ok()?;
        let Some(folder) = opened else { return Some((0, 0)) };
        let (mut bytes, mut count) = (0_u64, 0);
        for entry in Dir::read_from(&folder).ok()? {
            let entry = entry.ok()?;
            let seen = found(statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)).ok()?;
            let Some(stat) = seen else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                bytes = bytes.saturating_add(on_disk(stat.st_blocks));
                count += 1;
            }
        }
        Some((bytes, count))
    }

    /// Bytes on disk of one file; 0 if it positively is not there.
    pub(super) fn file(&self, place: &str) -> Option<u64> {
        let seen = found(statat(self.home, place, AtFlags::SYMLINK_NOFOLLOW)).ok()?;
        Some(seen.map_or(0, |stat| on_disk(stat.st_blocks)))
    }
}

fn on_disk(blocks: i64) -> u64 {
    u64::try_from(blocks).unwrap_or(0).saturating_mul(512)
}
