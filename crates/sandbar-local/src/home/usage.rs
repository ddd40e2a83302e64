//! What sandboxes that ended had used: one JSON object a line in the data folder, in two files of bounded size.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, renameat, statat};
use rustix::io::Errno;
use sandbar_core::{SandboxId, UsageEntry, UsageReport};

use super::Home;
use crate::error::found;
use crate::wait;

/// The file that grows.
const USAGE: &str = "usage.jsonl";
/// The one before it.
const OLD_USAGE: &str = "usage.jsonl.1";
/// All files that tell of ended sandboxes, in the data folder.
pub(crate) const USAGE_FILES: [&str; 2] = [OLD_USAGE, USAGE];
/// Size at which a file is put aside, in bytes: some ten thousand sandboxes.
const MAX_FILE: u64 = 4 << 20;
/// How long another writer may keep this one waiting: it writes a line. One that was frozen meanwhile must not keep sandboxes from their end.
const TURN: Duration = Duration::from_millis(200);

impl Home {
    /// Adds an entry.
    pub(crate) fn add_usage(&self, entry: &UsageEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let end = Instant::now() + TURN;
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let mut file = File::from(openat(self, USAGE, flags, Mode::RUSR | Mode::WUSR)?);
            let is_locked = lock(&file, end)?;
            let now = found(statat(self, USAGE, AtFlags::SYMLINK_NOFOLLOW))?;
            let data = file.metadata()?;
            if now.is_none_or(|now| now.st_ino != data.ino()) && Instant::now() < end {
                // It was put aside while this waited.
                continue;
            }
            if data.len() >= MAX_FILE && is_locked {
                renameat(self, USAGE, self, OLD_USAGE)?;
                continue;
            }
            let mut last = [b'\n'];
            if data.len() > 0 {
                file.read_exact_at(&mut last, data.len() - 1)?;
            }
            if last != [b'\n'] {
                // The last writer was killed in the middle of a line.
                line.insert(0, b'\n');
            }
            return file.write_all(&line);
        }
    }

    /// The entries, oldest first, one a sandbox.
    pub(crate) fn usage(&self, id: Option<&SandboxId>) -> io::Result<UsageReport> {
        let mut report = UsageReport::default();
        let mut known = BTreeSet::new();
        for name in [OLD_USAGE, USAGE] {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let Some(file) = found(openat(self, name, flags, Mode::empty()))? else { continue };
            let mut text = Vec::new();
            File::from(file).take(MAX_FILE * 2).read_to_end(&mut text)?;
            for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let Ok(entry) = serde_json::from_slice::<UsageEntry>(line) else {
                    report.unreadable += 1;
                    continue;
                };
                // An end that was interrupted is written down again by whoever finishes it.
                if id.is_none_or(|id| *id == entry.id) && known.insert(entry.id.clone()) {
                    report.entries.push(entry);
                }
            }
        }
        Ok(report)
    }
}

/// Takes the lock; `false` where somebody keeps it past `end`.
fn lock(file: &File, end: Instant) -> rustix::io::Result<bool> {
    wait::until(end.saturating_duration_since(Instant::now()), || {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(cause) => Err(cause),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use sandbar_core::EndCause;

    use super::*;
    use crate::home::now;

    fn entry(id: &str) -> UsageEntry {
        UsageEntry {
            version: UsageEntry::VERSION,
            id: SandboxId::new(id).unwrap(),
            name: None,
            created_at: now(),
            started_at: now(),
            ended_at: now(),
            cause: EndCause::Destroyed,
            wall_seconds: 0.5,
            cpu_seconds: Some(0.25),
            memory_peak_bytes: None,
            disk_bytes: Some(7),
        }
    }

    fn home() -> (tempfile::TempDir, Home) {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::ensure(&scratch.path().join("home")).unwrap();
        (scratch, home)
    }

    #[test]
    fn entries_come_back_and_are_nobody_elses_to_read() {
        let (_scratch, home) = home();
        assert_eq!(home.usage(None).unwrap(), UsageReport::default());
        let entries = [entry("s1"), entry("s2")];
        for entry in &entries {
            home.add_usage(entry).unwrap();
        }
        assert_eq!(home.usage(None).unwrap().entries, entries);
        assert_eq!(home.usage(Some(&entries[1].id)).unwrap().entries, entries[1..]);
        let mode = fs::metadata(home.path().join(USAGE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        home.add_usage(&entries[0]).unwrap();
        assert_eq!(home.usage(None).unwrap().entries, entries, "one entry a sandbox");
    }

    #[test]
    fn a_torn_line_costs_itself_and_no_other() {
        let (_scratch, home) = home();
        home.add_usage(&entry("s1")).unwrap();
        let path = home.path().join(USAGE);
        let text = fs::read(&path).unwrap();
        fs::write(&path, [&text[..], &text[..text.len() / 2]].concat()).unwrap();
        home.add_usage(&entry("s2")).unwrap();
        let report = home.usage(None).unwrap();
        assert_eq!((report.entries.len(), report.unreadable), (2, 1));
    }

    #[test]
    fn files_are_bounded_and_one_that_holds_the_lock_stops_nobody() {
        let (_scratch, home) = home();
        home.add_usage(&entry("s0")).unwrap();
        let path = home.path().join(USAGE);
        let line = fs::read(&path).unwrap();
        let many = usize::try_from(MAX_FILE).unwrap() / line.len() + 1;
        fs::write(&path, line.repeat(many)).unwrap();
        home.add_usage(&entry("s1")).unwrap();
        assert!(fs::metadata(&path).unwrap().len() < 1000 && home.path().join(OLD_USAGE).exists());
        assert_eq!(home.usage(None).unwrap().entries.len(), 2);
        let held = File::open(&path).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        home.add_usage(&entry("s2")).unwrap();
        assert_eq!(home.usage(None).unwrap().entries.len(), 3);
    }
}
