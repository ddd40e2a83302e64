use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::handover::{FIRST_CLOSED_FD, NETWORK_FD};
use crate::network::NetworkSockets;

/// Descriptor numbers that can be taken: the handover uses less.
const LIMIT: RawFd = 64;

/// Takes ownership of a descriptor that this process inherited, and sets close-on-exec. Each number is given out once
/// in a process's life; to be called before the process opens anything by itself.
#[expect(unsafe_code, reason = "an inherited descriptor is known by its number only")]
pub fn take_descriptor(number: RawFd) -> io::Result<OwnedFd> {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    if !(0..LIMIT).contains(&number) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("descriptor {number} is out of range"),
        ));
    }
    if TAKEN.fetch_or(1 << number, Ordering::Relaxed) & (1 << number) != 0 {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("descriptor {number} was taken before"),
        ));
    }
    // SAFETY: the number is not negative, and the borrow ends with the call, which fails for a closed descriptor.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)
        .map_err(|error| io::Error::new(error.kind(), format!("inherited descriptor {number}: {error}")))?;
    // SAFETY: it is open (checked above) and nothing else in this process owns it, as each number is given out once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Takes the sockets of the sandbox's network, where the launch left some: [`Network`](crate::Network). As for
/// [`take_descriptor`], nothing may have been opened before, as it could have got their numbers.
#[expect(unsafe_code, reason = "an inherited descriptor is known by its number only")]
pub fn take_network() -> io::Result<Option<NetworkSockets>> {
    // SAFETY: the number is not negative, and the borrow ends with the call, which fails for a closed descriptor.
    let first = unsafe { BorrowedFd::borrow_raw(NETWORK_FD) };
    match rustix::io::fcntl_getfd(first) {
        Err(Errno::BADF) => return Ok(None),
        found => found?,
    };
    let taken = (NETWORK_FD..FIRST_CLOSED_FD).map(take_descriptor).collect::<io::Result<_>>()?;
    NetworkSockets::checked(taken).map(Some)
}
