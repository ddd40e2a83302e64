use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstat, open, openat, unlinkat};
use rustix::io::Errno;
use sandbar_wire::envd::{Code, RpcError};

use super::error::failed;

/// How long a removal may go on: something inside can fill a folder as fast as it is emptied.
const MAX_TIME: Duration = Duration::from_secs(600);

/// Removes an entry and everything below it; what is absent already is no error.
pub(crate) fn remove(path: &Path) -> Result<(), RpcError> {
    if path == Path::new("/") {
        return Err(RpcError::new(Code::InvalidArgument, "the root folder can't be removed"));
    }
    let result = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => remove_folder(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(failed("remove", path, &error))
        }
        _ => Ok(()),
    }
}

/// Device and number of a folder.
type Identity = (u64, u64);

/// Removes a folder without recursion and with two descriptors: whoever made the tree chose how deep it is, and
/// deeper than any path can name.
fn remove_folder(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let name = CString::new(name.as_bytes())?;
    let above = open(above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let end = Instant::now() + MAX_TIME;
    loop {
        empty(enter(&above, &name)?, end)?;
        match unlinkat(&above, &name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY) if Instant::now() < end => {}
            result => return Ok(result?),
        }
    }
}

/// Removes what is in a folder.
fn empty(top: OwnedFd, end: Instant) -> io::Result<()> {
    // The way back: a folder's name, and the folder it is in.
    let mut way: Vec<(CString, Identity)> = Vec::new();
    let mut folder = top;
    loop {
        if Instant::now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it is filled as fast as it is emptied"));
        }
        if let Some(name) = remove_until_folder(&folder)? {
            let inner = match enter(&folder, &name) {
                // Somebody else removed or replaced it.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                other => other?,
            };
            way.push((name, identity(&folder)?));
            folder = inner;
            continue;
        }
        let Some((name, above)) = way.pop() else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        folder = openat(&folder, c"..", flags, Mode::empty())?;
        if identity(&folder)? != above {
            return Err(io::Error::other("it was moved while it was removed"));
        }
        match unlinkat(&folder, &name, AtFlags::REMOVEDIR) {
            // Filled again, or moved away: the next look at this folder tells.
            Ok(()) | Err(Errno::NOTEMPTY | Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Removes entries up to the first folder that isn't empty; `None` where nothing is left.
fn remove_until_folder(folder: &OwnedFd) -> io::Result<Option<CString>> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => match unlinkat(folder, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::NOTEMPTY) => return Ok(Some(name.to_owned())),
                Err(error) => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn enter(above: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, name, flags, Mode::empty())
}

fn identity(folder: &impl AsFd) -> io::Result<Identity> {
    let stat = fstat(folder)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deeper than a path can name (4,096 bytes) and than a small stack can follow.
    fn deep(top: &Path, levels: usize) {
        fs::create_dir(top).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = open(top, flags, Mode::empty()).unwrap();
        for _ in 0..levels {
            rustix::fs::mkdirat(&folder, c"d", Mode::RWXU).unwrap();
            folder = openat(&folder, c"d", flags, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn trees_of_any_depth_and_kind_go() {
        let folder = tempfile::tempdir().unwrap();
        let (top, kept) = (folder.path().join("top"), folder.path().join("kept"));
        deep(&top, 5000);
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("f"), "x").unwrap();
        std::os::unix::fs::symlink(&kept, top.join("link")).unwrap();
        for number in 0..2000 {
            fs::create_dir(top.join(format!("n{number}"))).unwrap();
            fs::write(top.join(format!("n{number}/f")), "x").unwrap();
        }
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        thread.spawn(move || remove(&top).map(|()| assert!(!top.exists()))).unwrap().join().unwrap().unwrap();
        assert!(kept.join("f").exists(), "links are not followed");
        assert_eq!(remove(&folder.path().join("absent")), Ok(()));
        remove(&kept.join("f")).unwrap();
        assert!(fs::read_dir(&kept).unwrap().next().is_none());
        assert!(remove(Path::new("/")).is_err());
    }
}
