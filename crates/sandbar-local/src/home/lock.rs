use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use super::Folder;
use crate::error::found;
use crate::wait::pause;

const FILE: &str = "lock";
/// How long a reader's momentary look at a lock may stand in the way of somebody who wants it. A look takes microseconds; this bounds how long
/// a stopped process can be waited for.
const LOOKERS: Duration = Duration::from_secs(2);

/// The lock of a sandbox' folder: whoever holds it is the sandbox' shim, or acts in its place.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: OwnedFd,
}

impl Lock {
    /// Takes the lock; `None` means that somebody else holds it, or that the folder is gone.
    pub(crate) fn take(folder: &Folder) -> rustix::io::Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let Some(file) = found(openat(folder, FILE, flags, Mode::RUSR | Mode::WUSR))? else {
            return Ok(None);
        };
        let end = Instant::now() + LOOKERS;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Self { _file: file })),
                // Somebody else holds it: a shim does so for good, a looker for a moment. A second look tells them apart.
                Err(Errno::WOULDBLOCK) if held(folder)? || Instant::now() > end => return Ok(None),
                Err(Errno::WOULDBLOCK) => pause(),
                Err(Errno::INTR) => {}
                Err(cause) => return Err(cause),
            }
        }
    }
}

/// Whether a shim holds the lock. Looks for a moment and leaves nothing.
pub(super) fn held(folder: &Folder) -> rustix::io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Some(file) = found(openat(folder, FILE, flags, Mode::empty()))? else { return Ok(false) };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(cause) => Err(cause),
    }
}
