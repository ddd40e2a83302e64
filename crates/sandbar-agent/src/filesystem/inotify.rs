use std::ffi::{CString, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// Room for the events of one read: each has 16 bytes and a name of at most 256.
const BUFFER_BYTES: usize = 16 << 10;

/// The kernel's queue of file-system events.
pub(super) struct Inotify(OwnedFd);

/// One event of the kernel.
#[derive(Clone, Debug)]
pub(super) struct RawEvent {
    pub(super) watch: i32,
    pub(super) flags: ReadFlags,
    /// The same in both halves of a move; else 0.
    pub(super) cookie: u32,
    /// Absent for the watched folder itself.
    pub(super) name: Option<OsString>,
}

impl Inotify {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Watches a folder; the number names it in events.
    pub(super) fn add(&self, path: &Path, follow: bool) -> io::Result<i32> {
        let mut flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        if !follow {
            flags |= WatchFlags::DONT_FOLLOW;
        }
        let path = CString::new(path.as_os_str().as_bytes())?;
        Ok(inotify::add_watch(&self.0, path, flags)?)
    }

    pub(super) fn remove(&self, watch: i32) {
        // It may have vanished with its folder.
        let _ = inotify::remove_watch(&self.0, watch);
    }

    /// A batch of what is queued; empty only where nothing is.
    pub(super) fn read(&self) -> io::Result<Vec<RawEvent>> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => events.push(RawEvent {
                    watch: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event.file_name().map(|name| OsString::from_vec(name.to_bytes().to_vec())),
                }),
                Err(rustix::io::Errno::AGAIN) => return Ok(events),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if reader.is_buffer_empty() && events.len() >= MAX_BATCH {
                return Ok(events);
            }
        }
    }
}

impl Inotify {
    /// As [`Inotify::read`], but waits a little for something to come.
    pub(super) fn read_soon(&self, limit: Duration) -> io::Result<Vec<RawEvent>> {
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)) {
            // Whoever interrupts it makes it shorter, and nothing is lost by that.
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(Vec::new()),
            Ok(_) => self.read(),
            Err(error) => Err(error.into()),
        }
    }
}

/// Events of one batch, about.
const MAX_BATCH: usize = 1024;

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Inotify {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
