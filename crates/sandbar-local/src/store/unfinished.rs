use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, openat, statat};
use rustix::io::Errno;

use crate::error::found;
use crate::home::Home;
use crate::id::random_text;

/// New folders that are tried: who sweeps takes one between its making and its lock for wreckage, and does so rarely.
const ATTEMPTS: usize = 16;

/// Makes a folder for something that is not finished, with a lock held on it, so that nobody takes it for wreckage; and its name, which begins with `start`.
pub(crate) fn make_locked(home: &Home, folder: &str, start: &str) -> rustix::io::Result<(String, OwnedFd)> {
    for _ in 0..ATTEMPTS {
        let name = format!("{start}{}", random_text(12)?);
        let place = format!("{folder}/{name}");
        mkdirat(home, &place, Mode::RWXU)?;
        // Else it was swept away meanwhile, or is about to be.
        if let Some(Some(dir)) = found(lock(home, &place))? {
            return Ok((name, dir));
        }
    }
    Err(Errno::AGAIN)
}

/// The folder at `place` with its lock, which whoever removes it holds to the end; `None` where somebody else has it.
pub(crate) fn lock(home: &Home, place: &str) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let dir = openat(home, place, flags, Mode::empty())?;
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(cause) => return Err(cause),
    }
    // It may have got another name, or none, between the two.
    let (mine, there) = (fstat(&dir)?, found(statat(home, place, AtFlags::SYMLINK_NOFOLLOW))?);
    Ok(there.is_some_and(|there| (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)).then_some(dir))
}
