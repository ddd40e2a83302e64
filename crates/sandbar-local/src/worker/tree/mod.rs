//! Trees of files as layers of an overlay that is mounted with `userxattr`: a character device 0/0 says that something is gone, and the attribute
//! `user.overlay.opaque` that a folder hides what is below it.

mod file;
mod measure;
mod merge;

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, XattrFlags, fgetxattr, flistxattr, fsetxattr, openat, statat,
};
use rustix::io::Errno;
use sandbar_core::ErrorKind;

use super::job::Failure;

pub(super) use file::Copier;
pub(super) use measure::measure;
pub(super) use merge::merge;

/// Most folders in each other: deeper trees are made by accident or to hurt, and each level holds descriptors.
const MAX_DEPTH: usize = 512;
/// Most files with several names that are remembered, so that memory is bounded; of more of them, each name becomes a file of its own.
const MAX_LINKS: usize = 1 << 20;
/// Most bytes of names of the attributes of a file, and of one value: what Linux allows (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MAX_XATTR: usize = 64 * 1024;
/// As many of them as nearly every list has.
const FEW_XATTRS: usize = 512;
/// Says that a folder hides what is below it.
const OPAQUE: &CStr = c"user.overlay.opaque";

/// Opens a folder for reading that is open as a path.
pub(super) fn reopen(folder: &OwnedFd) -> Result<OwnedFd, Failure> {
    open_folder(folder, c".").map_err(|cause| Failure::io("open", b".", cause))
}

pub(super) fn open_folder(parent: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// The names in a folder, and what they are, one at a time.
fn each_entry(
    folder: &OwnedFd,
    path: &[u8],
    mut see: impl FnMut(&CStr, Stat) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let broken = |cause: Errno| Failure::io("list", path, cause);
    for entry in Dir::read_from(folder).map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => see(name, stat)?,
            // Somebody removed it meanwhile.
            Err(Errno::NOENT) => {}
            Err(cause) => return Err(Failure::io("look at", &joined(path, name), cause)),
        }
    }
    Ok(())
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub(super) fn is_whiteout(stat: &Stat) -> bool {
    kind(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}

fn joined(path: &[u8], name: &CStr) -> Vec<u8> {
    let mut whole = path.to_vec();
    if !whole.is_empty() {
        whole.push(b'/');
    }
    whole.extend_from_slice(name.to_bytes());
    whole
}

/// Bytes of a file, which the kernel never says to be less than none.
fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn too_deep(path: &[u8]) -> Failure {
    let start = path.get(..200).unwrap_or(path).escape_ascii();
    let message = format!("more than {MAX_DEPTH} folders in each other: `{start}...`");
    Failure::new(ErrorKind::LimitExceeded, message)
}

/// Whether a folder hides what is below it.
pub(super) fn is_opaque(folder: &OwnedFd, path: &[u8]) -> Result<bool, Failure> {
    let mut value = [0; 8];
    match fgetxattr(folder, OPAQUE, &mut value[..]) {
        Ok(length) => Ok(value.get(..length) == Some(b"y")),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::RANGE) => Ok(false),
        Err(cause) => Err(Failure::io("read an attribute of", path, cause)),
    }
}

/// The attributes that belong to what is in a file and not to the overlay or the machine, by name.
fn xattrs(file: impl AsFd, path: &[u8]) -> Result<Vec<(std::ffi::CString, Vec<u8>)>, Failure> {
    let broken = |cause: Errno| Failure::io("read the attributes of", path, cause);
    let file = file.as_fd();
    // Nearly no file has any.
    let mut names = vec![0; FEW_XATTRS];
    let mut listed = flistxattr(file, &mut names[..]);
    if listed == Err(Errno::RANGE) {
        names = vec![0; MAX_XATTR];
        listed = flistxattr(file, &mut names[..]);
    }
    let length = match listed {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        listed => listed.map_err(broken)?,
    };
    let mut found = Vec::new();
    for name in names[..length].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if !name.to_bytes().starts_with(b"user.") || name.to_bytes().starts_with(b"user.overlay.") {
            continue;
        }
        let mut value = vec![0; MAX_XATTR];
        match fgetxattr(file, name, &mut value[..]) {
            Ok(length) => value.truncate(length),
            Err(Errno::NODATA) => continue,
            Err(cause) => return Err(broken(cause)),
        }
        found.push((name.to_owned(), value));
    }
    found.sort();
    Ok(found)
}

fn copy_xattrs(from: impl AsFd, to: impl AsFd, path: &[u8]) -> Result<(), Failure> {
    for (name, value) in xattrs(from, path)? {
        match fsetxattr(&to, &name, &value, XattrFlags::empty()) {
            Ok(()) | Err(Errno::NOTSUP) => {}
            Err(cause) => return Err(Failure::io("set an attribute of", path, cause)),
        }
    }
    Ok(())
}
