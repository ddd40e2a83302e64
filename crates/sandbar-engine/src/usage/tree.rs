//! What stands in the writable layers.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Stat, fstat, openat2, seek, statat,
};
use rustix::io::Errno;

use super::child::{Counter, Trouble};
use super::measure::Usage;
use super::seen::{Met, Seen};
use crate::subvolume;

/// The writable layers, below the folder of them.
const LAYERS: [&CStr; 2] = [c"upper", c"usr-upper"];
/// Entries that are looked at: as many as can be in the time that a caller is likely to grant.
const MAX_ENTRIES: u64 = 10_000_000;
/// Folders in each other. No program can name a file much below 2,000.
pub(crate) const MAX_DEPTH: usize = 1 << 14;
/// Folders that are kept open on the way, so that moving one of them disturbs nothing. Real trees are no deeper, and a
/// process has 1024 descriptors at least.
const MAX_OPEN: usize = 200;
/// Some hundreds of entries a system call. It stands on the stack, since nothing may be allocated.
const BUFFER_BYTES: usize = 16 * 1024;
/// The part of it that is used once a folder was left for one below: what was read beyond that one is read again.
const RESUMED_BYTES: usize = 2 * 1024;

/// A folder on the way from the top to where the count is.
pub(crate) struct Level {
    /// Absent where it is too far down to be kept open while something below it is counted.
    folder: Option<OwnedFd>,
    identity: (u64, u64),
    /// Where in it to go on.
    next: u64,
}

/// Counts what the layers hold. They may change meanwhile.
pub(super) fn count(
    layers: BorrowedFd<'_>,
    counter: &mut Counter<'_>,
    usage: &mut Usage,
) -> Result<(), Trouble> {
    let mut entries = 0;
    for layer in LAYERS {
        match open(layers, layer) {
            Ok(top) => count_layer(top, &mut counter.levels, &mut counter.seen, &mut entries, usage)?,
            Err(Errno::NOENT) => {}
            Err(cause) => return Err(cause.into()),
        }
    }
    Ok(())
}

/// Counts what one folder holds.
pub(crate) fn count_layer(
    top: OwnedFd,
    levels: &mut Vec<Level>,
    seen: &mut Seen,
    entries: &mut u64,
    usage: &mut Usage,
) -> Result<(), Trouble> {
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    levels.clear();
    levels.push(level(top)?);
    while let Some(here) = levels.last_mut() {
        let Some(folder) = &here.folder else { return Err(Trouble::Moved) };
        let room = if here.next == 0 { &mut buffer[..] } else { &mut buffer[..RESUMED_BYTES] };
        let scanned = scan(folder, here.identity.0, room, seen, entries, usage)?;
        if let Some((below, next)) = scanned {
            here.next = next;
            if levels.len() == levels.capacity() {
                return Err(Trouble::TooDeep);
            }
            if levels.len() >= MAX_OPEN
                && let Some(here) = levels.last_mut()
            {
                here.folder = None;
            }
            levels.push(level(below)?);
        } else {
            let done = levels.pop();
            let Some(above) = levels.last_mut() else { return Ok(()) };
            if above.folder.is_none() {
                let folder = done.and_then(|done| done.folder).ok_or(Trouble::Moved)?;
                above.folder = Some(open_above(&folder, above.identity)?);
            }
            let Some(folder) = &above.folder else { return Err(Trouble::Moved) };
            seek(folder, SeekFrom::Start(above.next))?;
        }
    }
    Ok(())
}

fn level(folder: OwnedFd) -> Result<Level, Errno> {
    let stat = fstat(&folder)?;
    Ok(Level { folder: Some(folder), identity: (stat.st_dev, stat.st_ino), next: 0 })
}

fn open_above(folder: &OwnedFd, identity: (u64, u64)) -> Result<OwnedFd, Trouble> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let above = rustix::fs::openat(folder, c"..", flags, Mode::empty())?;
    let stat = fstat(&above)?;
    if (stat.st_dev, stat.st_ino) == identity { Ok(above) } else { Err(Trouble::Moved) }
}

/// Counts entries from where the folder stands until one has to be gone into: that one, and the place after it.
fn scan(
    folder: &OwnedFd,
    device: u64,
    buffer: &mut [MaybeUninit<u8>],
    seen: &mut Seen,
    entries: &mut u64,
    usage: &mut Usage,
) -> Result<Option<(OwnedFd, u64)>, Trouble> {
    let mut listing = RawDir::new(folder, buffer);
    while let Some(entry) = listing.next() {
        let entry = match entry {
            Ok(entry) => entry,
            // It was removed.
            Err(Errno::NOENT) => return Ok(None),
            Err(cause) => return Err(cause.into()),
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        *entries += 1;
        if *entries > MAX_ENTRIES {
            return Err(Trouble::TooManyEntries);
        }
        let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(cause) => return Err(cause.into()),
        };
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // The top of a subvolume has a number of its own and is of the same file system; what is mounted is not opened below.
        let is_subvolume = is_folder && stat.st_ino == subvolume::TOP;
        if stat.st_dev != device && !is_subvolume {
            continue;
        }
        usage.disk_bytes = usage.disk_bytes.saturating_add(share(&stat, is_folder, seen));
        if is_folder {
            match open(folder.as_fd(), name) {
                Ok(below) => return Ok(Some((below, entry.next_entry_cookie()))),
                // Gone since, or made something else.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(cause) => return Err(cause.into()),
            }
        }
    }
    Ok(None)
}

/// Bytes on disk that count for this name. A file with several names counts whole at the first that is met; its number of
/// names is the owner's to change during the count, so it decides only where there is no room to remember the file.
fn share(stat: &Stat, is_folder: bool, seen: &mut Seen) -> u64 {
    let bytes = on_disk(stat);
    if is_folder || stat.st_nlink <= 1 {
        return bytes;
    }
    match seen.meet(stat.st_dev, stat.st_ino) {
        Met::First => bytes,
        Met::Again => 0,
        Met::Full => bytes / stat.st_nlink,
    }
}

/// Bytes that a file takes on disk, or in memory.
pub(super) fn on_disk(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}

fn open(folder: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(folder, name, flags, Mode::empty(), resolve) {
        // Something is mounted there, which is none of the sandbox's.
        Err(Errno::XDEV) => Err(Errno::NOENT),
        opened => opened,
    }
}
