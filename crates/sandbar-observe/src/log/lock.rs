//! One writer at a time, whatever process it is in: a lock on the very file that is written to, so that nothing lies beside it.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The first pause between two attempts: a writer is done in some ten microseconds.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// The right to write and to rotate, as long as it is held.
pub(crate) struct Exclusive<'a>(&'a File);
/// The right to find the files where they are, as long as it is held.
pub(crate) struct Shared<'a>(&'a File);

impl<'a> Exclusive<'a> {
    /// Waits for it, not longer than `until`. The kernel's own way of waiting has no bound, and a writer may be stopped in its middle.
    pub(crate) fn take(file: &'a File, until: Instant) -> io::Result<Self> {
        take(file, FlockOperation::NonBlockingLockExclusive, until).map(|()| Self(file))
    }
}

impl<'a> Shared<'a> {
    /// As [`Exclusive::take`].
    pub(crate) fn take(file: &'a File, until: Instant) -> io::Result<Self> {
        take(file, FlockOperation::NonBlockingLockShared, until).map(|()| Self(file))
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        // Also where a child that is just being started has the descriptor for another moment.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

fn take(file: &File, operation: FlockOperation, until: Instant) -> io::Result<()> {
    let mut pause = FIRST_PAUSE;
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => {
                let why = "another process holds it and does not let go";
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            Err(cause) => return Err(cause.into()),
        }
    }
}

/// Whether `file` is still what stands at `path`.
pub(crate) fn is_in_place(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(cause),
    }
}
