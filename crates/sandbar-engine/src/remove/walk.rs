//! The walk itself. It also runs in a child of a process with threads, so it allocates nothing.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, SeekFrom, chmod, fchmod, fstat,
    openat2, renameat_with, seek, unlinkat,
};
use rustix::io::Errno;

use crate::subvolume;

/// Folders open at once. What lies deeper is moved up to the top of the tree and met there again.
const MAX_OPEN: usize = 48;
/// Linux allows 255 bytes.
const NAME_BYTES: usize = 256;
/// Some hundreds of entries a system call. It stands on the stack, since nothing may be allocated.
const BUFFER_BYTES: usize = 16 * 1024;
/// Names that a hostile tree may have taken at its top before we give up moving there.
const MAX_TAKEN_NAMES: u32 = 1 << 16;

/// What could not be removed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    /// Entries left, not counting folders that are left because of them. 0 is success.
    pub(super) left: u64,
    /// Why the first of them is.
    pub(super) errno: i32,
    pub(super) name: Name,
}

/// A file name by value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name {
    bytes: [u8; NAME_BYTES],
}

impl Name {
    pub(super) const EMPTY: Self = Self { bytes: [0; NAME_BYTES] };

    pub(super) fn of(name: &CStr) -> Self {
        let mut bytes = [0; NAME_BYTES];
        let given = name.to_bytes();
        let length = given.len().min(NAME_BYTES - 1);
        bytes[..length].copy_from_slice(&given[..length]);
        Self { bytes }
    }

    pub(super) fn from_bytes(given: &[u8]) -> Self {
        let mut bytes = [0; NAME_BYTES];
        let length = given.len().min(NAME_BYTES - 1);
        bytes[..length].copy_from_slice(&given[..length]);
        Self { bytes }
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl Outcome {
    const NOTHING_LEFT: Self = Self { left: 0, errno: 0, name: Name::EMPTY };

    fn fail(&mut self, name: &CStr, errno: Errno) {
        if self.left == 0 {
            self.errno = errno.raw_os_error();
            self.name = Name::of(name);
        }
        self.left += 1;
    }
}

/// A folder that is being emptied.
struct Level {
    fd: OwnedFd,
    name: Name,
    /// Entries removed in this pass, and entries that can't be.
    removed: u64,
    stuck: u64,
}

/// Removes `name` in `parent`, whatever it is; a name that is not there is removed already.
pub(super) fn remove(parent: BorrowedFd<'_>, name: &CStr) -> Outcome {
    let mut outcome = Outcome::NOTHING_LEFT;
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return outcome,
        // POSIX and Linux differ in what they say of a folder.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(cause) => {
            outcome.fail(name, cause);
            return outcome;
        }
    }
    match open_folder(parent, name) {
        Ok(top) if subvolume::destroy(parent, name, top.as_fd()) => return outcome,
        Ok(top) => empty(top, name, &mut outcome),
        Err(cause) => outcome.fail(name, cause),
    }
    if outcome.left == 0
        && let Err(cause) = unlinkat(parent, name, AtFlags::REMOVEDIR)
    {
        outcome.fail(name, cause);
    }
    outcome
}

fn empty(top: OwnedFd, name: &CStr, outcome: &mut Outcome) {
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut levels: [Option<Level>; MAX_OPEN] = [const { None }; MAX_OPEN];
    let mut moved = 0;
    levels[0] = Some(Level { fd: top, name: Name::of(name), removed: 0, stuck: 0 });
    let mut depth = 0;
    loop {
        let at_limit = depth + 1 == MAX_OPEN;
        let (upper, lower) = levels.split_at_mut(depth);
        let Some(level) = lower[0].as_mut() else { return };
        let top = upper.first().and_then(Option::as_ref).map(|level| level.fd.as_fd());
        match scan(level, &mut buffer, at_limit.then_some(top).flatten(), &mut moved, outcome) {
            Found::Folder(fd, name) => {
                levels[depth + 1] = Some(Level { fd, name, removed: 0, stuck: 0 });
                depth += 1;
            }
            Found::End => {
                let (removed, stuck) = (level.removed, level.stuck);
                let again = removed > 0 && stuck == 0;
                if depth == 0 {
                    // Names moved up here may stand before the place the pass had reached.
                    if removed > 0 && rewind(level) {
                        outcome.left -= stuck.min(outcome.left);
                        continue;
                    }
                    return;
                }
                let name = level.name;
                let Some(Some(above)) = upper.last_mut() else { return };
                match unlinkat(&above.fd, name.as_c_str(), AtFlags::REMOVEDIR) {
                    Ok(()) => above.removed += 1,
                    // A file system that loses its place while entries go: look once more, as long as that helps.
                    Err(Errno::NOTEMPTY | Errno::EXIST) if again && rewind(level) => continue,
                    Err(cause) => {
                        above.stuck += 1;
                        if stuck == 0 {
                            outcome.fail(name.as_c_str(), cause);
                        }
                    }
                }
                levels[depth] = None;
                depth -= 1;
            }
        }
    }
}

#[expect(clippy::large_enum_variant, reason = "a name by value: nothing may be allocated")]
enum Found {
    /// One to go into, opened; the place after it is kept.
    Folder(OwnedFd, Name),
    End,
}

/// Removes entries from where the folder stands until one has to be gone into. With `move_to`, those are moved there.
fn scan(
    level: &mut Level,
    buffer: &mut [MaybeUninit<u8>],
    move_to: Option<BorrowedFd<'_>>,
    moved: &mut u32,
    outcome: &mut Outcome,
) -> Found {
    let mut entries = RawDir::new(&level.fd, buffer);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(cause) => {
                level.stuck += 1;
                outcome.fail(level.name.as_c_str(), cause);
                return Found::End;
            }
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let is_folder = entry.file_type() == FileType::Directory;
        let first = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let cause = match unlinkat(&level.fd, name, first) {
            Ok(()) | Err(Errno::NOENT) => {
                level.removed += 1;
                continue;
            }
            Err(cause) => cause,
        };
        let goes_in = (is_folder && matches!(cause, Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS))
            || (entry.file_type() == FileType::Unknown && matches!(cause, Errno::ISDIR | Errno::PERM));
        if !goes_in {
            level.stuck += 1;
            outcome.fail(name, cause);
            continue;
        }
        let opened = open_folder(level.fd.as_fd(), name);
        let failed = match (opened, move_to) {
            (Err(cause), _) => Some(cause),
            (Ok(fd), _) if subvolume::destroy(level.fd.as_fd(), name, fd.as_fd()) => None,
            (Ok(_), Some(top)) => move_up(level.fd.as_fd(), name, top, moved).err(),
            (Ok(fd), None) => match seek(&level.fd, SeekFrom::Start(entry.next_entry_cookie())) {
                Ok(_) => return Found::Folder(fd, Name::of(name)),
                Err(cause) => Some(cause),
            },
        };
        match failed {
            None => level.removed += 1,
            Some(cause) => {
                level.stuck += 1;
                outcome.fail(name, cause);
            }
        }
    }
    Found::End
}

fn rewind(level: &mut Level) -> bool {
    level.removed = 0;
    level.stuck = 0;
    seek(&level.fd, SeekFrom::Start(0)).is_ok()
}

/// Opens a folder for emptying: no link, nothing mounted, and with all rights for its owner.
pub(crate) fn open_folder(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let all = Mode::RWXU;
    let fd = match openat2(parent, name, flags, Mode::empty(), resolve) {
        Err(Errno::ACCESS) => {
            // Its mode keeps even its owner out. A descriptor that stands for it only needs no right to it.
            let path = openat2(parent, name, flags | OFlags::PATH, Mode::empty(), resolve)?;
            let mut link = [0; 32];
            chmod(own_link(path.as_raw_fd(), &mut link), all)?;
            openat2(parent, name, flags, Mode::empty(), resolve)?
        }
        fd => fd?,
    };
    let mode = Mode::from_raw_mode(fstat(&fd)?.st_mode);
    if !mode.contains(all) {
        // Without it unlinking may be refused, and that refusal is what gets reported.
        let _ = fchmod(&fd, all);
    }
    Ok(fd)
}

fn move_up(from: BorrowedFd<'_>, name: &CStr, top: BorrowedFd<'_>, moved: &mut u32) -> Result<(), Errno> {
    loop {
        let mut buffer = *b".moved-0000000000\0";
        let end = buffer.len() - 1;
        let mut rest = *moved;
        for digit in buffer[7..end].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        *moved += 1;
        let new = CStr::from_bytes_with_nul(&buffer).map_err(|_| Errno::INVAL)?;
        match renameat_with(from, name, top, new, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) if *moved < MAX_TAKEN_NAMES => {}
            done => return done,
        }
    }
}

/// `/proc/self/fd/<fd>`, written without allocating.
fn own_link(fd: i32, buffer: &mut [u8; 32]) -> &CStr {
    let start = b"/proc/self/fd/";
    buffer[..start.len()].copy_from_slice(start);
    let mut digits = [0; 10];
    let (mut rest, mut count) = (fd.unsigned_abs(), 0);
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    for (at, digit) in digits[..count].iter().rev().enumerate() {
        buffer[start.len() + at] = *digit;
    }
    CStr::from_bytes_until_nul(buffer).unwrap_or(c"")
}
