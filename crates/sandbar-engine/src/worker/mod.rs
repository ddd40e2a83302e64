//! Programs of ours that work on files of others: with mapped ids, no view of the host, and nothing but what they are given.

mod child;
mod tree;

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal, waitid};

use crate::error::Error;
use crate::host::Host;
use crate::ids::IdMode;
use crate::launch::{MapTools, write_maps};
use crate::sys::{self, Cloned};

pub use tree::mapped_tree;

/// Making the namespaces and writing the maps takes milliseconds; a machine that swaps may need longer.
const START_BOUND: Duration = Duration::from_secs(30);

/// Most descriptors that such a program is given: input, output and the folders of as many layers as a root file system has, with room to spare.
pub const MAX_DESCRIPTORS: usize = 64;

/// Namespaces made by the clone itself.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS) as u64;

/// A program to start with mapped ids.
///
/// It is root of a user namespace of its own, or, with [`IdMode::Single`], the one user there, with the rights over the files of those ids and no other.
/// Its root is an empty folder, it has no network, sees no process, gets no environment and can't gain privileges. It ends with the *thread* that starts
/// it, which therefore has to be the one that waits for it.
#[derive(Debug)]
pub struct Mapped<'a> {
    /// The executable, a static one: there is nothing else to load from.
    pub program: BorrowedFd<'a>,
    /// Its only argument.
    pub name: &'a CStr,
    /// Its ids.
    pub ids: &'a IdMode,
    /// Its descriptors from 0 on, at least three and at most [`MAX_DESCRIPTORS`].
    pub descriptors: &'a [BorrowedFd<'a>],
}

/// A program that runs with mapped ids. Dropping it ends it.
#[derive(Debug)]
pub struct MappedProcess {
    pidfd: OwnedFd,
    is_reaped: bool,
}

impl Mapped<'_> {
    /// Starts it and answers once it executes.
    pub fn spawn(&self) -> Result<MappedProcess, Error> {
        debug_assert!((3..=MAX_DESCRIPTORS).contains(&self.descriptors.len()));
        let end = Instant::now() + START_BOUND;
        let fail = |cause: Errno| Error::io("start", "a process with mapped ids", cause);
        let parked = |fd: BorrowedFd<'_>| fcntl_dupfd_cloexec(fd, child::PARKING);
        let descriptors =
            self.descriptors.iter().map(|fd| parked(*fd)).collect::<Result<Vec<_>, _>>().map_err(fail)?;
        let program = parked(self.program).map_err(fail)?;
        let (ours, theirs) = parked_pair().map_err(fail)?;
        let (pid, pidfd) = match clone().map_err(fail)? {
            Cloned::Parent { pid, pidfd } => (pid, pidfd),
            Cloned::Child => child::run(&child::Child {
                program: program.as_fd(),
                name: self.name,
                has_root: self.ids.has_root(),
                descriptors: &descriptors,
                sync: theirs.as_fd(),
                parent_end: ours.as_fd(),
            }),
        };
        drop(theirs);
        let process = MappedProcess { pidfd, is_reaped: false };
        write_maps(pid, self.ids, &MapTools::of(&Host::observe()), end)?;
        send(&ours, &[child::GO], SendFlags::NOSIGNAL).map_err(fail)?;
        await_start(&ours, end)?;
        Ok(process)
    }
}

/// No other copy of either end may stay: each side notices the other's end by it.
fn parked_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((fcntl_dupfd_cloexec(&one, child::PARKING)?, fcntl_dupfd_cloexec(&other, child::PARKING)?))
}

/// Its socket closes when it executes; before that it tells what did not work.
fn await_start(socket: &OwnedFd, end: Instant) -> Result<(), Error> {
    let fail = |cause: Errno| Error::io("start", "a process with mapped ids", cause);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| fail(Errno::INVAL))?;
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => {
                return Err(Error::reason("start", "a process with mapped ids", "it was not ready in time"));
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(cause) => return Err(fail(cause)),
        }
        let mut packet = [0; child::REPORT_BYTES];
        match recv(socket, &mut packet[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Ok(()),
            Ok((_, length)) if length == packet.len() => {
                let (step, errno) = packet.split_at(4);
                let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
                let errno = Errno::from_raw_os_error(i32::try_from(number(errno)).unwrap_or(libc::EIO));
                let step = child::STEPS.get(number(step) as usize).copied().unwrap_or("start");
                return Err(Error::io(step, "a process with mapped ids", errno));
            }
            Ok(_) => return Err(fail(Errno::PROTO)),
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNRESET) => {}
            Err(cause) => return Err(fail(cause)),
        }
    }
}

impl MappedProcess {
    /// Ends it at once. It is still to be waited for.
    pub fn kill(&self) {
        // Whoever ended already needs no signal.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits for its end and answers its exit code; `None` if a signal ended it. Without a bound: for one whose output ended, or that was killed.
    pub fn wait(mut self) -> Result<Option<i32>, Error> {
        let status =
            self.reap().map_err(|cause| Error::io("wait for", "a process with mapped ids", cause))?;
        Ok(status.and_then(|status| status.exit_status()))
    }

    fn reap(&mut self) -> Result<Option<WaitIdStatus>, Errno> {
        loop {
            match waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Err(Errno::INTR) => {}
                done => {
                    self.is_reaped = true;
                    return done;
                }
            }
        }
    }
}

impl Drop for MappedProcess {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
            let _ = self.reap();
        }
    }
}

#[expect(unsafe_code, reason = "the clone itself")]
fn clone() -> Result<Cloned, Errno> {
    // SAFETY: the child goes straight to `child::run`, which neither allocates nor takes a lock and never returns.
    unsafe { sys::clone(NAMESPACES, None) }
}

/// Takes the descriptors from 3 on that such a program was given, `count` of them; `None` where one of them is not open.
///
/// To be called once, first thing in `main`, before anything opens a descriptor: what it answers owns those numbers.
pub fn take_descriptors(count: usize) -> Option<Vec<OwnedFd>> {
    debug_assert!(count <= MAX_DESCRIPTORS);
    (3..).take(count).map(sys::take_inherited).collect()
}
