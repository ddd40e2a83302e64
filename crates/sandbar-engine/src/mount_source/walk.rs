use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, accessat, openat2, statat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::mount::{OpenTreeFlags, open_tree};

use super::known::DATA_MARKS;

/// A big project with all its dependencies has some hundred thousand; that many take about a second.
const MOST_ENTRIES: usize = 1_000_000;
/// As long as a person waits for a sandbox with a big mount on a cold disk.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) entries: usize,
    pub(super) time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { entries: MOST_ENTRIES, time: LONGEST }
    }
}

/// What a walk found first. Paths are relative to its root, whose own is empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Walked {
    Clean,
    Socket(PathBuf),
    /// A data folder of Sandbar's.
    DataFolder(PathBuf),
    TooMany(usize),
    TooLong(Duration),
    /// A folder that this process can't list, but a sandbox might reach into.
    Closed(PathBuf, Errno),
}

/// Looks through everything that a mount of `root` would show. No link is followed and no other mount is entered.
/// What `is_allowed` says yes to is passed by.
pub(super) fn walk(root: BorrowedFd<'_>, bounds: Bounds, is_allowed: impl Fn(&Path) -> bool) -> Walked {
    let root = match own_view(root) {
        Ok(root) => root,
        Err(cause) => return Walked::Closed(PathBuf::new(), cause),
    };
    let end = Instant::now() + bounds.time;
    let mut seen = 0;
    let mut pending = vec![PathBuf::new()];
    while let Some(folder) = pending.pop() {
        let mut dir = match list(&root, &folder) {
            Ok(Some(dir)) => dir,
            Ok(None) => continue,
            Err(cause) => return Walked::Closed(folder, cause),
        };
        let mut marks = (false, false);
        while let Some(entry) = dir.read() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(cause) => return Walked::Closed(folder, cause),
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            seen += 1;
            if seen > bounds.entries {
                return Walked::TooMany(bounds.entries);
            }
            if Instant::now() > end {
                return Walked::TooLong(bounds.time);
            }
            let path = folder.join(OsStr::from_bytes(name));
            let kind = match entry.file_type() {
                // Some file systems don't tell in their lists.
                FileType::Unknown => match statat(&root, &path, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(data) => FileType::from_raw_mode(data.st_mode),
                    Err(Errno::NOENT) => continue,
                    Err(cause) => return Walked::Closed(folder, cause),
                },
                kind => kind,
            };
            marks.0 |= kind == FileType::Directory && name == DATA_MARKS.0.as_bytes();
            marks.1 |= kind == FileType::RegularFile && name == DATA_MARKS.1.as_bytes();
            match kind {
                FileType::Socket if !is_allowed(&path) => return Walked::Socket(path),
                FileType::Directory => pending.push(path),
                _ => {}
            }
        }
        if marks == (true, true) && !is_allowed(&folder) {
            return Walked::DataFolder(folder);
        }
    }
    Walked::Clean
}

/// What the mount will show, as far as this process may make one: what lies under other mounts shows in it. An ordinary
/// user may not, and can't mount what has another mount in it either.
fn own_view(root: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(root, c"", flags).or_else(|_| fcntl_dupfd_cloexec(root, 0))
}

/// `None` where there is nothing to see: it is gone, is another mount, or no sandbox of this user's could enter it.
fn list(root: &OwnedFd, folder: &Path) -> Result<Option<Dir>, Errno> {
    let path = if folder == Path::new("") { Path::new(".") } else { folder };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match openat2(root, path, flags, Mode::empty(), resolve) {
        Ok(fd) => Dir::new(fd).map(Some),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
        Err(Errno::ACCESS) if is_out_of_reach(root, path) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Host root is mapped into no sandbox, so its folders have no rights there but those that everybody has. All other
/// owners may be: the caller, or one of its subordinate ids.
fn is_out_of_reach(root: &OwnedFd, path: &Path) -> bool {
    statat(root, path, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|data| data.st_uid == 0)
        && accessat(root, path, Access::EXEC_OK, AtFlags::EACCESS) == Err(Errno::ACCESS)
}
