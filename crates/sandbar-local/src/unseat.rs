//! Ending a shim that does not act any more, so that somebody else can take its place.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::home::{Folder, Lock};
use crate::wait;

/// How long a killed shim may take to be gone.
const DEATH: Duration = Duration::from_secs(5);
/// How long its lock may take to be free after that: others may have the same in mind, and look.
const FREE: Duration = Duration::from_secs(2);

/// Kills the shim that holds the folder's lock, by what the record says of it, and takes the lock. `None` means that somebody else holds it now.
pub(crate) fn unseat(folder: &Folder) -> std::io::Result<Option<Lock>> {
    if let Some(lock) = Lock::take(folder)? {
        return Ok(Some(lock));
    }
    let unnamed =
        || std::io::Error::other("its shim neither answers nor lets go, and the record does not name it");
    let record = folder.record()?.ok_or_else(unnamed)?;
    let Some(mark) = record.private.shim else { return Err(unnamed()) };
    if let Some(pid) = mark.pid()? {
        match pidfd_open(pid, PidfdFlags::empty()) {
            // The descriptor was opened before this look, so it names the process that is looked at.
            Ok(pidfd) if mark.lives()? => end(&pidfd)?,
            Ok(_) | Err(Errno::SRCH) => {}
            Err(cause) => return Err(cause.into()),
        }
    }
    let mut lock = None;
    wait::until(FREE, || {
        lock = Lock::take(folder)?;
        Ok::<_, Errno>(lock.is_some())
    })?;
    Ok(lock)
}

fn end(pidfd: &std::os::fd::OwnedFd) -> std::io::Result<()> {
    match pidfd_send_signal(pidfd, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(cause) => return Err(cause.into()),
    }
    let end = Instant::now() + DEATH;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                let message = format!("its shim was killed and does not end within {} s", DEATH.as_secs());
                return Err(std::io::Error::other(message));
            }
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause.into()),
        }
    }
}
