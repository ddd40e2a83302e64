use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::error::Error;
use crate::host::Host;
use crate::ids::IdMode;
use crate::launch::{MapTools, write_maps};
use crate::sys::{self, Cloned};

/// Writing the maps runs two programs.
const MAP_BOUND: Duration = Duration::from_secs(10);
/// How long a child that was killed may take to be gone; one that sleeps in a file system is reaped by whoever waits next.
const END: Duration = Duration::from_secs(1);

/// Work on one folder that belongs to the ids of sandboxes, by a child with the rights of their root. With subordinate ids and with a single one that
/// is a user namespace with the same map: the caller itself may neither look into nor change what belongs to subordinate ids. Root has every right
/// anyway.
#[derive(Debug, Clone, Copy)]
pub(super) struct MappedWork<'a> {
    /// For messages.
    pub(super) operation: &'static str,
    /// For messages.
    pub(super) resource: &'a str,
    pub(super) ids: &'a IdMode,
    pub(super) folder: BorrowedFd<'a>,
    /// How long it may take.
    pub(super) bound: Duration,
}

impl MappedWork<'_> {
    /// Has `work` done by a child, and answers what it reports. It runs in a copy of a process that may have threads: it must neither allocate nor take
    /// a lock. It has the folder and nothing else that this process has open.
    pub(super) fn run<const N: usize>(
        &self,
        work: impl FnOnce(BorrowedFd<'_>) -> [u8; N],
    ) -> Result<[u8; N], Error> {
        let fail = |cause: Errno| Error::io(self.operation, self.resource, cause);
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(fail)?;
        let is_mapped = !matches!(self.ids, IdMode::Range { .. });
        let (pid, pidfd) = match clone(is_mapped).map_err(fail)? {
            Cloned::Parent { pid, pidfd } => (pid, pidfd),
            Cloned::Child => {
                // A lock of the caller's would outlive the caller in it.
                let keep = [theirs.as_raw_fd(), self.folder.as_raw_fd()];
                if crate::usage::close_others(keep).is_err() {
                    sys::exit(1);
                }
                let go = recv(&theirs, &mut [0_u8; 1][..], RecvFlags::empty());
                if !matches!(go, Ok((_, 1))) {
                    sys::exit(1);
                }
                // With a single id there is no other user to be, and groups can't be dropped.
                let is_root_inside = matches!(self.ids, IdMode::Subordinate(_));
                if is_root_inside && sys::clear_groups().and_then(|()| sys::set_ids(0, 0)).is_err() {
                    sys::exit(1);
                }
                let report = work(self.folder);
                let _ = send(&theirs, &report, SendFlags::NOSIGNAL);
                sys::exit(0);
            }
        };
        drop(theirs);
        let end = Instant::now() + self.bound;
        let mapped = if is_mapped {
            write_maps(pid, self.ids, &MapTools::of(&Host::observe()), Instant::now() + MAP_BOUND)
        } else {
            Ok(())
        };
        let told = mapped.and_then(|()| send(&ours, b"g", SendFlags::NOSIGNAL).map(drop).map_err(fail));
        let answer = told.and_then(|()| receive(ours.as_fd(), end).map_err(fail));
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        let bound = Timespec::try_from(END).unwrap_or_default();
        if matches!(poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&bound)), Ok(1..)) {
            let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
        match answer? {
            Answer::Report(report) => Ok(report),
            Answer::Late => {
                let why = format!("it took longer than {} s", self.bound.as_secs_f32());
                Err(Error::reason(self.operation, self.resource, why))
            }
            Answer::Ended => {
                Err(Error::reason(self.operation, self.resource, "the process that does it ended early"))
            }
        }
    }
}

enum Answer<const N: usize> {
    Report([u8; N]),
    Late,
    Ended,
}

fn receive<const N: usize>(socket: BorrowedFd<'_>, end: Instant) -> Result<Answer<N>, Errno> {
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
        match poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(Answer::Late),
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause),
            Ok(_) => {
                let mut report = [0; N];
                return match recv(socket, &mut report[..], RecvFlags::empty()) {
                    Ok((_, length)) if length == N => Ok(Answer::Report(report)),
                    Ok(_) | Err(Errno::CONNRESET) => Ok(Answer::Ended),
                    Err(Errno::INTR) => continue,
                    Err(cause) => Err(cause),
                };
            }
        }
    }
}

#[expect(unsafe_code, reason = "the clone itself")]
fn clone(with_namespace: bool) -> Result<Cloned, Errno> {
    let flags = if with_namespace { libc::CLONE_NEWUSER as u64 } else { 0 };
    // SAFETY: the child closes, receives, sets ids, does work that neither allocates nor takes a lock, sends and exits.
    unsafe { sys::clone(flags, None) }
}
