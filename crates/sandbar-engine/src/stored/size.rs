//! What stands in one folder, without a sandbox that has it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::work::MappedWork;
use crate::error::Error;
use crate::ids::IdMode;
use crate::usage::{self, Level, Seen, Trouble, Usage};

const OPERATION: &str = "count the size of";
/// Bytes, entries, code, error number.
const REPORT_BYTES: usize = 8 + 8 + 4 + 4;

/// Bytes on disk and entries of what `folder` holds.
pub(super) fn folder_size(
    folder: BorrowedFd<'_>,
    ids: &IdMode,
    bound: Duration,
) -> Result<(u64, u64), Error> {
    // The child allocates nothing.
    let mut seen = Seen::new();
    let mut levels: Vec<Level> = Vec::with_capacity(usage::MAX_DEPTH);
    let work = MappedWork { operation: OPERATION, resource: "a folder", ids, folder, bound };
    let report = work.run(|folder| {
        let (mut counted_bytes, mut entries) = (Usage::default(), 0);
        let counted = open_anew(folder).map_err(Trouble::from).and_then(|top| {
            usage::count_layer(top, &mut levels, &mut seen, &mut entries, &mut counted_bytes)
        });
        let (code, errno) = counted.err().map_or((0, 0), Trouble::code);
        let mut report = [0; REPORT_BYTES];
        report[..8].copy_from_slice(&counted_bytes.disk_bytes.to_le_bytes());
        report[8..16].copy_from_slice(&entries.to_le_bytes());
        report[16..20].copy_from_slice(&code.to_le_bytes());
        report[20..].copy_from_slice(&errno.to_le_bytes());
        report
    })?;
    let number =
        |range: std::ops::Range<usize>| u64::from_le_bytes(report[range].try_into().unwrap_or_default());
    let code = u32::from_le_bytes(report[16..20].try_into().unwrap_or_default());
    let errno = i32::from_le_bytes(report[20..].try_into().unwrap_or_default());
    match Trouble::from_code(code, errno) {
        None => Ok((number(0..8), number(8..16))),
        Some(Trouble::Kernel(errno)) => Err(Error::io(OPERATION, "a folder", errno)),
        Some(trouble) => Err(Error::reason(OPERATION, "a folder", trouble.reason())),
    }
}

/// With a place of its own in it: that of the caller's descriptor is shared with this child.
fn open_anew(folder: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    openat(folder, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
