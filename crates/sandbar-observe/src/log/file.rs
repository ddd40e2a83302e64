//! Opening the file so that it is this user's alone.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

/// Opens the file for appending, or makes it; the folders above it are made for this user alone.
pub(super) fn open(path: &Path, folder: &Path) -> io::Result<File> {
    check_folder(folder)?;
    // Never waits for the other end of a pipe, never takes over a terminal, never follows a link that somebody else may have put there.
    let flags = OFlags::RDWR
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::CLOEXEC
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY;
    let file = match openat(CWD, path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::LOOP) => return Err(refused("it is a symbolic link: name the file itself")),
        Err(cause) => return Err(cause.into()),
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(refused("it is no regular file"));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused("it belongs to another user"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(refused("others may read or write it: `chmod 600` it"));
    }
    Ok(file)
}

/// In a folder where others may rename, a record is theirs.
fn check_folder(folder: &Path) -> io::Result<()> {
    let meta = match std::fs::metadata(folder) {
        Ok(meta) => meta,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            std::fs::metadata(folder)?
        }
        Err(cause) => return Err(cause),
    };
    let owner = meta.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(refused("its folder belongs to another user"));
    }
    let (writable, sticky) = (meta.mode() & 0o022 != 0, meta.mode() & 0o1000 != 0);
    if writable && !sticky {
        return Err(refused("others may write to its folder"));
    }
    Ok(())
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
