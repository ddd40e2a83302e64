//! Memory that files systems in memory and System V segments take.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstatfs, openat, openat2};
use rustix::io::Errno;

use super::child::Trouble;
use super::measure::Usage;

/// Where the launch mounts file systems in memory that a sandbox can write to.
const MOUNTS: [&CStr; 3] = [c"dev/shm", c"run", c"dev"];
/// `TMPFS_MAGIC` of the kernel's `magic.h`.
const TMPFS: u64 = 0x0102_1994;
/// The segments of the reader's own namespace, one a line; the last two columns are bytes in memory and swapped out.
const SEGMENTS: &CStr = c"/proc/sysvipc/shm";

/// Adds what the file systems in memory hold, deleted files included.
pub(super) fn count_mounts(root: &OwnedFd, usage: &mut Usage) -> Result<(), Trouble> {
    for mount in MOUNTS {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = match openat2(root, mount, flags, Mode::empty(), resolve) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            Err(cause) => return Err(cause.into()),
        };
        let stat = fstatfs(&folder)?;
        if u64::try_from(stat.f_type).ok() == Some(TMPFS) {
            let block = u64::try_from(stat.f_bsize).unwrap_or(0);
            let used = stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(block);
            usage.memory_bytes = usage.memory_bytes.saturating_add(used);
        }
    }
    Ok(())
}

/// Adds the segments of the namespace that the counter is in.
pub(super) fn count_segments(usage: &mut Usage) -> Result<(), Trouble> {
    let table = match openat(CWD, SEGMENTS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(table) => table,
        // A kernel without them.
        Err(Errno::NOENT) => return Ok(()),
        Err(cause) => return Err(cause.into()),
    };
    let mut lines = Lines::default();
    let mut chunk = [0; 4096];
    loop {
        match rustix::io::read(&table, &mut chunk) {
            Ok(0) => break,
            Ok(got) => chunk[..got].iter().for_each(|byte| lines.take(*byte)),
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause.into()),
        }
    }
    usage.memory_bytes = usage.memory_bytes.saturating_add(lines.total);
    Ok(())
}

/// Adds up the last two numbers of each line. The heading has none.
#[derive(Default)]
struct Lines {
    total: u64,
    last_two: [u64; 2],
    number: Option<u64>,
}

impl Lines {
    fn take(&mut self, byte: u8) {
        if byte.is_ascii_digit() {
            let digit = u64::from(byte - b'0');
            self.number = Some(self.number.unwrap_or(0).saturating_mul(10).saturating_add(digit));
            return;
        }
        if let Some(number) = self.number.take() {
            self.last_two = [self.last_two[1], number];
        }
        if byte == b'\n' {
            let [resident, swapped] = std::mem::take(&mut self.last_two);
            self.total = self.total.saturating_add(resident).saturating_add(swapped);
        }
    }
}

#[cfg(any(test, feature = "fuzzing"))]
/// What a table of segments adds up to.
pub(crate) fn segments(table: &[u8]) -> u64 {
    let mut lines = Lines::default();
    for byte in table {
        lines.take(*byte);
    }
    lines.total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_columns_count() {
        let mut lines = Lines::default();
        let table = "       key      shmid perms                  size       rss                  swap\n\
                     0          0  1600                52428800  4096                     1\n\
                     -5          1   600                52428800      0                     0\n\
                     7          2   600                    4096   8192                  2048\n";
        table.bytes().for_each(|byte| lines.take(byte));
        assert_eq!(lines.total, 4096 + 1 + 8192 + 2048);
    }
}
