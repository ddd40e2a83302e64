use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::fstatvfs;

use super::shared::Shared;
use super::usage::{Failures, What, count};
use crate::home::Folder;

/// Longest share of the time that goes into counting as a precaution: one part in this many.
const REST: u32 = 20;
/// Without any news of the file system's, a count is made again after this long: what others delete hides what a sandbox writes.
const STALE: Duration = Duration::from_secs(5);

/// Watches how much a sandbox has written. Counting is dear, asking the file system for its free space is not: as long as the whole file system
/// grew by less than what the sandbox may still write, the sandbox is not above its limit.
#[derive(Debug, Default)]
pub(super) struct DiskWatch {
    last: Option<Count>,
    failures: Failures,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    bytes: u64,
    file_system: u64,
    at: Instant,
    took: Duration,
}

impl DiskWatch {
    /// Why the limit is to be taken for exceeded, if it is. `busy` says whether anything but the agent runs.
    pub(super) async fn exceeded(&mut self, shared: &Arc<Shared>, limit: u64, busy: bool) -> Option<String> {
        let used = used(&shared.folder);
        if let Some(last) = &self.last {
            let due = if self.failures.any() {
                last.at.elapsed() >= last.took
            } else {
                is_due(last, used.unwrap_or(u64::MAX), limit, busy)
            };
            if !due {
                return None;
            }
        }
        let begun = Instant::now();
        let counted = count(shared, What::Disk).await;
        let took = begun.elapsed();
        let before = self.last.map_or(0, |last| last.bytes);
        let bytes = counted.as_ref().map_or(before, |usage| usage.disk_bytes);
        let now = Instant::now();
        self.last = Some(Count { bytes, file_system: used.unwrap_or(0), at: now, took });
        match counted {
            Ok(_) => {
                self.failures.forget();
                (bytes > limit).then(|| format!("{bytes} bytes of disk space are above the limit of {limit}"))
            }
            Err(why) => self
                .failures
                .add()
                .then(|| format!("the disk space it takes can't be counted: {}", why.message())),
        }
    }
}

/// Whether it is time to count again.
fn is_due(last: &Count, used: u64, limit: u64, busy: bool) -> bool {
    let since = last.at.elapsed();
    let may_still_write = limit.saturating_sub(last.bytes);
    let grew = used.saturating_sub(last.file_system);
    if grew > may_still_write {
        // It may be this sandbox: half of the time is not too much for that.
        return since >= last.took;
    }
    if since < last.took * REST {
        return false;
    }
    grew > may_still_write / 2 || (busy && used != last.file_system && since >= STALE)
}

/// Bytes in use on the file system of the data folder.
fn used(folder: &Folder) -> Option<u64> {
    let stat = fstatvfs(folder).ok()?;
    Some(stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_waits_until_the_limit_could_be_reached() {
        let last = Count {
            bytes: 100,
            file_system: 1000,
            at: Instant::now().checked_sub(Duration::from_secs(3)).unwrap(),
            took: Duration::from_millis(1),
        };
        assert!(!is_due(&last, 1000, 200, true), "nothing was written at all");
        assert!(!is_due(&last, 1040, 200, true));
        assert!(is_due(&last, 1060, 200, true));
        assert!(is_due(&last, 1001, 100, false), "at the limit, anything counts");
        let slow = Count { took: Duration::from_secs(1), ..last };
        assert!(!is_due(&slow, 1060, 200, true), "as a precaution, counting must not be all that is done");
        assert!(is_due(&slow, 9000, 200, true), "above the limit, if this one wrote it all");
        assert!(!is_due(&Count { took: Duration::from_secs(15), ..last }, 9000, 200, true));
        let old = Count { at: Instant::now().checked_sub(STALE).unwrap(), ..last };
        assert!(is_due(&old, 900, 10_000, true), "others deleted");
        assert!(!is_due(&old, 900, 10_000, false), "nobody is there to have written");
    }
}
