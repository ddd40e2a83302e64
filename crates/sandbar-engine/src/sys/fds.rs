use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

/// Makes `number` a copy of `fd` that stays open on exec, whatever was there before.
pub(crate) fn dup_onto(fd: BorrowedFd<'_>, number: i32) -> Result<(), Errno> {
    debug_assert_ne!(fd.as_raw_fd(), number);
    // SAFETY: this runs in a child that owns its whole table; what `number` was is not used again.
    check(unsafe { libc::syscall(libc::SYS_dup3, fd.as_raw_fd(), number, 0) })
}

/// Closes a descriptor of which this child has a copy that nobody in it uses.
pub(crate) fn close_raw(number: i32) -> Result<(), Errno> {
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_close, number) })
}

/// Closes everything from `first` on but `keep`.
pub(crate) fn close_from(first: i32, keep: i32) -> Result<(), Errno> {
    debug_assert!(keep > first);
    // SAFETY: the child's own table; it uses nothing but `keep` and the numbers below `first` from here on, and ends
    // without running destructors.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, keep - 1, 0) })?;
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_close_range, keep + 1, i32::MAX, 0) })
}

/// Marks everything from `first` on to be closed on exec.
pub(crate) fn close_on_exec_from(first: i32) -> Result<(), Errno> {
    // SAFETY: integers only, and nothing is closed yet.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, i32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
}

/// Owns descriptor `number`, which this process was started with, and marks it to be closed on exec; `None` if it is not open.
pub(crate) fn take_inherited(number: i32) -> Option<OwnedFd> {
    // SAFETY: integers only; an error says that the number is not open.
    check(unsafe { libc::syscall(libc::SYS_fcntl, number, libc::F_SETFD, libc::FD_CLOEXEC) }).ok()?;
    // SAFETY: it is open, and by the rule of the only caller nothing in this process owns it.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes everything but standard input, output and error.
///
/// # Safety
/// Nothing in this process may own a descriptor from 3 on, or use one later as if it were still open.
pub(crate) unsafe fn close_all_but_standard() -> Result<(), Errno> {
    // SAFETY: integers only; what is closed is nobody's, by the contract of this function.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, i32::MAX, 0) })
}

/// A control group namespace whose root are the groups this process is in.
pub(crate) fn unshare_cgroup() -> Result<(), Errno> {
    // SAFETY: no memory involved.
    check(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWCGROUP) })
}

fn check(answer: libc::c_long) -> Result<(), Errno> {
    if answer >= 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
