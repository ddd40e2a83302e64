//! Folders that an archive does not name, in the layers that it lies on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, Stat, fgetxattr, fstat, openat, statat};
use rustix::io::Errno;

use super::place::{FOLDER, OPAQUE_ATTRIBUTE};
use crate::ArchiveError;

/// The mode of a folder that no layer has: what every root file system has there, else 0755. Without that a root file system that names only a file in `/tmp` would have one in
/// which nobody but root can write.
pub(crate) fn usual(path: &[u8]) -> Mode {
    Mode::from_raw_mode(match path {
        b"tmp" | b"var/tmp" => 0o1777,
        b"root" => 0o700,
        _ => 0o755,
    })
}

/// What the folder at `path` is in `layers`, the topmost first, as they are seen through the layer `own`; `None` where nothing of it is seen.
pub(crate) fn look(
    layers: &[BorrowedFd<'_>],
    own: BorrowedFd<'_>,
    path: &[u8],
) -> Result<Option<Stat>, ArchiveError> {
    find(layers, own, path)
        .map_err(|error| ArchiveError::io("look at it in the layers below", error).of(path))
}

fn find(layers: &[BorrowedFd<'_>], own: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Stat>, Errno> {
    let mut own = openat(own, c".", FOLDER, Mode::empty())?;
    let mut seen = Vec::new();
    for layer in layers {
        if add(&mut seen, openat(layer, c".", FOLDER, Mode::empty())?)? {
            break;
        }
    }
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if seen.is_empty() || is_opaque(&own)? {
            return Ok(None);
        }
        let mut inner = Vec::new();
        for folder in &seen {
            match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                Ok(status) if FileType::from_raw_mode(status.st_mode) == FileType::Directory => {
                    if add(&mut inner, openat(folder, name, FOLDER, Mode::empty())?)? {
                        break;
                    }
                }
                // A file, a link or a mark that it is gone: it hides what is below.
                Ok(_) => break,
                Err(error) => return Err(error),
            }
        }
        seen = inner;
        own = openat(&own, name, FOLDER, Mode::empty())?;
    }
    seen.first().map(fstat).transpose()
}

/// `true` means that it hides what is below it.
fn add(seen: &mut Vec<OwnedFd>, folder: OwnedFd) -> Result<bool, Errno> {
    let hides = is_opaque(&folder)?;
    seen.push(folder);
    Ok(hides)
}

fn is_opaque(folder: impl AsFd) -> Result<bool, Errno> {
    let mut value = [0; 8];
    match fgetxattr(folder, OPAQUE_ATTRIBUTE, &mut value[..]) {
        Ok(length) => Ok(value.get(..length) == Some(b"y")),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::RANGE) => Ok(false),
        Err(error) => Err(error),
    }
}
