//! Files the child makes. Allocation-free, see [`super::child`].

use std::ffi::CStr;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chownat, fchmod, mkdirat, openat, statat, symlinkat,
    unlinkat,
};
use rustix::io::{Errno, read, write};

pub(super) fn dir(path: &CStr, mode: u16) -> Result<(), Errno> {
    match mkdirat(CWD, path, Mode::from_raw_mode(u32::from(mode))) {
        Err(Errno::EXIST) => return Ok(()),
        done => done?,
    }
    // The umask took bits away that such a folder needs.
    if mode & 0o7022 != 0 {
        let folder =
            openat(CWD, path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        fchmod(&folder, Mode::from_raw_mode(u32::from(mode)))?;
    }
    Ok(())
}

pub(super) fn file(path: &CStr, mode: u16, bytes: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::from_raw_mode(u32::from(mode)))?;
    write_all(&file, bytes)
}

pub(super) fn link(target: &CStr, path: &CStr) -> Result<(), Errno> {
    symlinkat(target, CWD, path)
}

/// Sees that a file says this. What an earlier run left in the way (a folder, a read-only mount) is the sandbox's own affair:
/// then it stays as it is.
pub(super) fn own_file(path: &CStr, bytes: &[u8]) {
    if !says(path, bytes) {
        let _ = unlinkat(CWD, path, AtFlags::empty());
        let _ = file(path, 0o644, bytes);
    }
}

fn says(path: &CStr, bytes: &[u8]) -> bool {
    // Not to wait for a pipe of that name.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(CWD, path, flags, Mode::empty()) else { return false };
    // A host name has at most 64 bytes; what is longer is another text.
    let mut found = [0; 128];
    read(&file, &mut found[..]).is_ok_and(|length| found.get(..length) == Some(bytes))
}

/// Gives a folder to its user where it is a folder and does not belong to that user yet. One that can't be looked at
/// because of what an earlier run did to it is the sandbox's own affair.
pub(super) fn own_folder(path: &CStr, uid: u32, gid: u32) -> Result<(), Errno> {
    let data = match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::PERM | Errno::IO) => return Ok(()),
        data => data?,
    };
    if FileType::from_raw_mode(data.st_mode) != FileType::Directory
        || (data.st_uid, data.st_gid) == (uid, gid)
    {
        return Ok(());
    }
    chownat(CWD, path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)
}

fn write_all(file: &impl std::os::fd::AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = write(file, bytes)?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}
