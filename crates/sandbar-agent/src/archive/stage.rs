use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    FlockOperation, Mode, OFlags, RenameFlags, flock, lstat, mkdirat, open, openat, renameat_with,
};
use rustix::io::Errno;
use sandbar_archive::discard;
use sandbar_wire::envd::HttpError;

use super::merge::merge;
use super::outcome::of_io;

/// In the staging folder: what comes from the archive.
const NEW: &str = "new";
/// In the staging folder: what has to give way to it.
const OLD: &str = "old";

/// Where an import goes first: a hidden folder beside what is to be, on the same file system.
#[derive(Debug)]
pub(super) struct Stage {
    /// The folder that there is: the destination, or the first above it.
    above: OwnedFd,
    /// What there is not between it and the destination, the destination's name last.
    missing: Vec<OsString>,
    name: OsString,
    staging: OwnedFd,
    path: PathBuf,
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Stage {
    /// Makes it.
    pub(super) fn make(path: &Path, name: &OsStr) -> Result<Self, HttpError> {
        let (above, missing) = find(path)?;
        mkdirat(&above, name, Mode::RWXU).map_err(|error| fail("write to", path, error))?;
        let staging = openat(&above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|error| fail("write to", path, error))?;
        let stage = Self { above, missing, name: name.to_owned(), staging, path: path.to_owned() };
        // Held for as long as this process lives: whoever cleans up waits for it.
        flock(&stage.staging, FlockOperation::LockExclusive)
            .map_err(|error| stage.fail("lock a folder in", error))?;
        for name in [NEW, OLD] {
            mkdirat(&stage.staging, name, Mode::RWXU).map_err(|error| stage.fail("write to", error))?;
        }
        Ok(stage)
    }

    /// The folder to unpack into.
    pub(super) fn folder(&self) -> Result<OwnedFd, HttpError> {
        let fail = |error| self.fail("write to", error);
        let mut folder = self.open(NEW)?;
        for name in &self.missing {
            mkdirat(&folder, name, Mode::from_raw_mode(0o755)).map_err(fail)?;
            folder = openat(&folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(fail)?;
        }
        Ok(folder)
    }

    /// Puts it in its place.
    pub(super) fn commit(self) -> Result<(), HttpError> {
        let new = self.open(NEW)?;
        match self.missing.first() {
            Some(first) => {
                renameat_with(&new, first, &self.above, first, RenameFlags::NOREPLACE).map_err(|error| {
                    match error {
                        Errno::EXIST => {
                            let text =
                                format!("path '{}' was made meanwhile: try again", self.path.display());
                            HttpError::new(409, text)
                        }
                        error => self.fail("move into", error),
                    }
                })?;
            }
            None => merge(new.as_fd(), self.open(OLD)?.as_fd(), self.above.as_fd())?,
        }
        Ok(())
    }

    fn open(&self, name: &str) -> Result<OwnedFd, HttpError> {
        openat(&self.staging, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|error| self.fail("write to", error))
    }

    fn fail(&self, doing: &str, error: Errno) -> HttpError {
        fail(doing, &self.path, error)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // After a failure that is the second one, and the first is told.
        let _ = discard(self.above.as_fd(), &self.name);
    }
}

/// Removes what an import left that was killed. It waits until that one has ended.
pub(super) fn clean(path: &Path, name: &OsStr) -> Result<(), HttpError> {
    let (above, _) = find(path)?;
    let staging = match openat(&above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        staging => File::from(staging.map_err(|error| fail("clean up in", path, error))?),
    };
    flock(&staging, FlockOperation::LockExclusive).map_err(|error| fail("clean up in", path, error))?;
    match discard(above.as_fd(), name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(of_io(format_args!("clean up in '{}'", path.display()), error))
        }
        _ => Ok(()),
    }
}

/// The folder at `path`, or the first above it that exists, and the names from there on.
fn find(path: &Path) -> Result<(OwnedFd, Vec<OsString>), HttpError> {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        match open(at, FOLDER, Mode::empty()) {
            Ok(folder) => {
                missing.reverse();
                return Ok((folder, missing));
            }
            // What is there and cannot be opened is a link: it would not be made.
            Err(Errno::NOENT) if lstat(at).is_ok() => {
                let text = format!("path '{}' is a symbolic link that leads nowhere", at.display());
                return Err(HttpError::new(400, text));
            }
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR) => {
                return Err(HttpError::new(400, format!("path '{}' is not a directory", at.display())));
            }
            Err(error) => return Err(fail("open", path, error)),
        }
        let (Some(name), Some(above)) = (at.file_name(), at.parent()) else {
            return Err(fail("open", path, Errno::NOENT));
        };
        missing.push(name.to_owned());
        at = above;
    }
}

fn fail(doing: &str, path: &Path, error: Errno) -> HttpError {
    of_io(format_args!("{doing} '{}'", path.display()), error)
}

#[cfg(test)]
mod tests;
