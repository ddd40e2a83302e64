use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, chmodat, openat, renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, Result};

/// Removes a folder that only its owner can reach, with all that is in it, however deep that is and whatever rights its folders have.
///
/// A tree from an archive or a sandbox may be deeper than a process may have files open, and its folders may have no rights, in which the usual way of removing
/// one fails. So folders are not entered one below the other: what is in one comes up to the top, until there is none.
pub fn discard(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
    Ok(remove(parent, &name)?)
}

fn remove(parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    allow(parent, name)?;
    let top = enter(parent, name)?;
    let mut next = 0;
    loop {
        let folders = folders_of(&top)?;
        if folders.is_empty() {
            return unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
        for folder in folders {
            let inner = enter(top.as_fd(), &folder)?;
            for child in folders_of(&inner)? {
                lift(&inner, &child, &top, &mut next)?;
            }
            unlinkat(&top, &*folder, AtFlags::REMOVEDIR)?;
        }
    }
}

/// The folders in a folder, made accessible; what else is in it is removed.
fn folders_of(dir: &OwnedFd) -> Result<Vec<CString>> {
    let mut folders = Vec::new();
    let mut others = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_owned();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let is_folder = kind(dir, &name)? == FileType::Directory;
        if is_folder { folders.push(name) } else { others.push(name) }
    }
    for name in others {
        unlinkat(dir, &*name, AtFlags::empty())?;
    }
    for name in &folders {
        allow(dir.as_fd(), name)?;
    }
    Ok(folders)
}

/// Gives a folder the rights that its owner needs to empty and to move it.
fn allow(dir: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    let mode = Mode::from_raw_mode(statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
    if mode.contains(Mode::RWXU) { Ok(()) } else { chmodat(dir, name, mode | Mode::RWXU, AtFlags::empty()) }
}

/// Moves a folder to the top, under a name that is free there.
fn lift(from: &OwnedFd, name: &CStr, top: &OwnedFd, next: &mut u64) -> Result<()> {
    loop {
        *next += 1;
        match renameat_with(from, name, top, next.to_string(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            moved => return moved,
        }
    }
}

fn enter(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn kind(dir: &OwnedFd, name: &CStr) -> Result<FileType> {
    Ok(FileType::from_raw_mode(statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{mkdirat, open};

    use super::*;

    #[test]
    fn neither_depth_nor_rights_keep_a_tree() {
        let place = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(place.path(), flags, Mode::empty()).unwrap();
        fs::create_dir_all(place.path().join("tree/1/2")).unwrap();
        fs::write(place.path().join("tree/1/2/file"), "x").unwrap();
        fs::write(place.path().join("kept"), "kept").unwrap();
        symlink("../../kept", place.path().join("tree/1/link")).unwrap();
        // Deeper than a process may usually have files open.
        let mut dir = openat(&parent, "tree", flags, Mode::empty()).unwrap();
        for _ in 0..3000 {
            mkdirat(&dir, "d", Mode::RWXU).unwrap();
            dir = openat(&dir, "d", flags, Mode::empty()).unwrap();
        }
        for closed in ["tree/1/2", "tree/1", "tree/d/d", "tree/d", "tree"] {
            fs::set_permissions(place.path().join(closed), fs::Permissions::from_mode(0o000)).unwrap();
        }
        discard(parent.as_fd(), OsStr::new("tree")).unwrap();
        let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
        assert_eq!(discard(parent.as_fd(), OsStr::new("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
