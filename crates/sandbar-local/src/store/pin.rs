//! What somebody works on that nothing names yet: the layers of a build between two of its steps. A file in `layers/pins` lists them, and counts as long as the one
//! who made it holds its lock: of one that died nothing stays in use.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use sandbar_core::{ErrorKind, Result};

use super::{LayerId, StoreLock};
use crate::error::{fail, found, io_error};
use crate::home::Home;
use crate::id::random_text;

/// The folder, in the data folder.
const FOLDER: &str = "layers/pins";
/// Longest list, in bytes: a thousand steps, each with as many layers as a template has, in 80 characters.
const MAX_LIST: u64 = 2 << 20;

/// Layers that count as in use until this is dropped.
#[derive(Debug)]
pub(crate) struct Pin {
    folder: OwnedFd,
    name: String,
    file: File,
    operation: &'static str,
}

impl Pin {
    /// One without layers. The lock keeps away who looks whether anybody holds it.
    pub(crate) fn new(home: &Home, _lock: &StoreLock, operation: &'static str) -> Result<Self> {
        let broken = |cause| broken(home, operation, cause);
        match mkdirat(home, FOLDER, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(cause) => return Err(broken(cause.into())),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(home, FOLDER, flags, Mode::empty()).map_err(|cause| broken(cause.into()))?;
        let name = random_text(12).map_err(|cause| broken(cause.into()))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND | OFlags::CLOEXEC;
        let file = openat(&folder, name.as_str(), flags, Mode::RUSR | Mode::WUSR)
            .map_err(|cause| broken(cause.into()))?;
        let pin = Self { folder, name, file: File::from(file), operation };
        flock(&pin.file, FlockOperation::LockExclusive).map_err(|cause| broken(cause.into()))?;
        Ok(pin)
    }

    /// Adds layers that are there. The lock is held since that was seen.
    pub(crate) fn add(&self, home: &Home, layers: &[LayerId], _lock: &StoreLock) -> Result<()> {
        let mut text = String::new();
        for layer in layers {
            text.push_str(layer.as_str());
            text.push('\n');
        }
        (&self.file).write_all(text.as_bytes()).map_err(|cause| broken(home, self.operation, cause))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // One that stays counts for nobody, and goes with the next removal of layers.
        let _ = unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
    }
}

impl Home {
    /// Layers that somebody works on.
    pub(super) fn pinned_layers(&self) -> Result<Vec<LayerId>> {
        const OPERATION: &str = "look for users";
        let mut layers = Vec::new();
        for name in self.pins(OPERATION)? {
            let Some(file) = self.pin(&name, OPERATION)? else { continue };
            if is_free(&file).map_err(|cause| broken(self, OPERATION, cause))? {
                continue;
            }
            let mut text = String::new();
            let read = (&file).take(MAX_LIST + 1).read_to_string(&mut text);
            read.map_err(|cause| broken(self, OPERATION, cause))?;
            if text.len() as u64 > MAX_LIST {
                let why =
                    format!("`{}/{FOLDER}/{name}` is longer than {MAX_LIST} bytes", self.path().display());
                return Err(fail(ErrorKind::Unavailable, OPERATION, why));
            }
            for line in text.lines() {
                let known = LayerId::try_from(line.to_owned());
                layers.push(known.map_err(|why| fail(ErrorKind::Unavailable, OPERATION, why))?);
            }
        }
        Ok(layers)
    }

    /// Removes what those left who died.
    pub(crate) fn remove_dead_pins(&self, lock: &StoreLock, operation: &'static str) -> Result<()> {
        debug_assert!(lock.is_alone());
        for name in self.pins(operation)? {
            let Some(file) = self.pin(&name, operation)? else { continue };
            if is_free(&file).map_err(|cause| broken(self, operation, cause))? {
                found(unlinkat(self, format!("{FOLDER}/{name}"), AtFlags::empty()))
                    .map_err(|cause| broken(self, operation, cause.into()))?;
            }
        }
        Ok(())
    }

    fn pins(&self, operation: &'static str) -> Result<Vec<String>> {
        self.entries(FOLDER).map_err(|cause| io_error(operation, FOLDER, cause))
    }

    fn pin(&self, name: &str, operation: &'static str) -> Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = found(openat(self, format!("{FOLDER}/{name}"), flags, Mode::empty()));
        Ok(opened.map_err(|cause| broken(self, operation, cause.into()))?.map(File::from))
    }
}

fn is_free(file: &File) -> std::io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(cause) => Err(cause.into()),
    }
}

fn broken(home: &Home, operation: &'static str, cause: std::io::Error) -> sandbar_core::Error {
    io_error(operation, &format!("`{}/{FOLDER}`", home.path().display()), cause)
}

#[cfg(test)]
mod tests {
    use super::super::Hold;
    use super::*;

    #[test]
    fn what_somebody_works_on_counts_until_that_ends() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("home");
        let home = Home::ensure(&folder).unwrap();
        let layer = LayerId::of_content(&"a".repeat(64)).unwrap();
        let lock = StoreLock::take(&home, Hold::Shared, "test").unwrap();
        assert!(home.layers_held().unwrap().is_empty());
        let pin = Pin::new(&home, &lock, "test").unwrap();
        assert!(home.layers_held().unwrap().is_empty());
        pin.add(&home, std::slice::from_ref(&layer), &lock).unwrap();
        drop(lock);
        let lock = StoreLock::take(&home, Hold::Alone, "test").unwrap();
        home.remove_dead_pins(&lock, "test").unwrap();
        assert_eq!(home.layers_held().unwrap().into_iter().collect::<Vec<_>>(), [layer]);
        drop(pin);
        assert!(home.layers_held().unwrap().is_empty());
        // One whose maker died.
        std::fs::write(folder.join(FOLDER).join("dead"), "x\n").unwrap();
        assert!(home.layers_held().unwrap().is_empty());
        home.remove_dead_pins(&lock, "test").unwrap();
        assert_eq!(std::fs::read_dir(folder.join(FOLDER)).unwrap().count(), 0);
    }
}
