use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::walk::{self, Name, Outcome};
use crate::error::Error;
use crate::host::Host;
use crate::ids::IdMode;
use crate::launch::{MapTools, write_maps};
use crate::sys::{self, Cloned};

/// Writing the maps runs two programs.
const MAP_BOUND: Duration = Duration::from_secs(10);
/// Count, error number, name.
const REPORT_BYTES: usize = 8 + 4 + 256;

/// As [`walk::remove`], by a child that is root of a user namespace with the sandbox's map: the files of its users belong
/// to subordinate ids, which the caller itself may not touch.
pub(super) fn remove(parent: BorrowedFd<'_>, name: &CStr, ids: &IdMode) -> Result<Outcome, Error> {
    let fail = |cause: Errno| Error::io("remove files of subordinate ids", name.to_string_lossy(), cause);
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(fail)?;
    let (pid, pidfd) = match clone_user_namespace().map_err(fail)? {
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
        Cloned::Child => {
            drop(ours);
            let go = recv(&theirs, &mut [0_u8; 1][..], RecvFlags::empty());
            if !matches!(go, Ok((_, 1))) || sys::clear_groups().and_then(|()| sys::set_ids(0, 0)).is_err() {
                sys::exit(1);
            }
            let outcome = walk::remove(parent, name);
            let mut packet = [0; REPORT_BYTES];
            packet[..8].copy_from_slice(&outcome.left.to_le_bytes());
            packet[8..12].copy_from_slice(&outcome.errno.to_le_bytes());
            let first = outcome.name.as_c_str().to_bytes();
            packet[12..12 + first.len()].copy_from_slice(first);
            let _ = send(&theirs, &packet, SendFlags::NOSIGNAL);
            sys::exit(0);
        }
    };
    drop(theirs);
    let mapped = write_maps(pid, ids, &MapTools::of(&Host::observe()), Instant::now() + MAP_BOUND)
        .and_then(|()| send(&ours, b"g", SendFlags::NOSIGNAL).map(drop).map_err(fail));
    if mapped.is_err() {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
    // Bounded by the size of the tree: the child only removes, and its end of the socket closes when it dies.
    let mut packet = [0; REPORT_BYTES];
    let received = loop {
        match recv(&ours, &mut packet[..], RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            other => break other,
        }
    };
    waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).map_err(fail)?;
    mapped?;
    if !matches!(received, Ok((_, REPORT_BYTES))) {
        return Err(Error::reason(
            "remove files of subordinate ids",
            name.to_string_lossy(),
            "the process that removes them ended early",
        ));
    }
    let (left, rest) = packet.split_at(8);
    let (errno, name) = rest.split_at(4);
    Ok(Outcome {
        left: u64::from_le_bytes(left.try_into().unwrap_or_default()),
        errno: i32::from_le_bytes(errno.try_into().unwrap_or_default()),
        name: Name::from_bytes(name),
    })
}

#[expect(unsafe_code, reason = "the clone itself")]
fn clone_user_namespace() -> Result<Cloned, Errno> {
    // SAFETY: the child closes, receives, sets ids, walks without allocating, sends and exits.
    unsafe { sys::clone(libc::CLONE_NEWUSER as u64, None) }
}
