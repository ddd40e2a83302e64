use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use sandbar_core::{ErrorKind, Result};

use crate::error::{fail, io_error};
use crate::home::Home;
use crate::wait::pause;

const FILE: &str = "layers/lock";
/// How long somebody waits for the store. Sharers hold it while they make a sandbox, those who remove while they look through the records: both take
/// milliseconds, and this bounds how long a stopped process can be waited for.
const WAIT: Duration = Duration::from_secs(30);

/// How to hold the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// To begin to use something: nothing goes meanwhile.
    Shared,
    /// To remove or replace something: nobody begins to use anything meanwhile.
    Alone,
}

/// The lock of layers, templates and volumes, held until it is dropped.
#[derive(Debug)]
pub(crate) struct StoreLock {
    _file: OwnedFd,
    hold: Hold,
}

impl StoreLock {
    /// Takes it, within a bound. Blocks: not for a thread that others wait for.
    pub(crate) fn take(home: &Home, hold: Hold, operation: &'static str) -> Result<Self> {
        let broken =
            |cause: Errno| io_error(operation, &format!("`{}/{FILE}`", home.path().display()), cause);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(home, FILE, flags, Mode::RUSR | Mode::WUSR).map_err(broken)?;
        let how = match hold {
            Hold::Shared => FlockOperation::NonBlockingLockShared,
            Hold::Alone => FlockOperation::NonBlockingLockExclusive,
        };
        let end = Instant::now() + WAIT;
        loop {
            match flock(&file, how) {
                Ok(()) => return Ok(Self { _file: file, hold }),
                Err(Errno::WOULDBLOCK) if Instant::now() < end => pause(),
                Err(Errno::WOULDBLOCK) => {
                    let why = format!("the store was in use for {} s", WAIT.as_secs());
                    return Err(fail(ErrorKind::Unavailable, operation, why)
                        .with_hint("look for a stopped `sandbar` process, and try again"));
                }
                Err(Errno::INTR) => {}
                Err(cause) => return Err(broken(cause)),
            }
        }
    }

    /// Takes it alone if nobody else holds it now; `None` if somebody does.
    pub(crate) fn take_now(home: &Home, operation: &'static str) -> Result<Option<Self>> {
        let broken =
            |cause: Errno| io_error(operation, &format!("`{}/{FILE}`", home.path().display()), cause);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(home, FILE, flags, Mode::RUSR | Mode::WUSR).map_err(broken)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file, hold: Hold::Alone })),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
            Err(cause) => Err(broken(cause)),
        }
    }

    /// Whether nobody else holds it.
    pub(crate) fn is_alone(&self) -> bool {
        self.hold == Hold::Alone
    }
}
