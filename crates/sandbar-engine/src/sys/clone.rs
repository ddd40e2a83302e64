use rustix::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::process::Pid;

/// Which side of [`clone`] this is.
pub(crate) enum Cloned {
    Parent { pid: Pid, pidfd: OwnedFd },
    Child,
}

/// `struct clone_args` of the kernel, as of version 2 (88 bytes).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLONE_PIDFD: u64 = 0x1000;

/// A new process with a copy of this one's memory, as `fork`, in new namespaces named by `flags`, and directly in a
/// cgroup (version 2) where one is given.
///
/// # Safety
///
/// In the child, until it executes another program or ends through [`exit`], only this thread exists and locks held by
/// others stay held: the child must not allocate, take locks, or return into code that does.
pub(crate) unsafe fn clone(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Cloned, Errno> {
    let mut pidfd: i32 = -1;
    let mut args = CloneArgs {
        flags: flags | CLONE_PIDFD,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    }
    // SAFETY: `args` is a valid `clone_args` that asks for no shared memory and no stack, so this returns twice like
    // `fork`; `pidfd` outlives the call. What the child may do is this function's own contract.
    let mut pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
    if pid < 0 && last() == Errno::NOSYS && cgroup.is_none() {
        // A filter round us (a container's, say) hides `clone3`; the old call does the same without a cgroup.
        let flags = args.flags | libc::SIGCHLD as u64;
        // SAFETY: as above; the remaining arguments are unused without CLONE_SETTLS and the TID flags.
        pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0u64, &raw mut pidfd, 0u64, 0u64) };
    }
    match pid {
        0 => Ok(Cloned::Child),
        pid if pid > 0 => {
            let raw = i32::try_from(pid).map_err(|_| Errno::OVERFLOW)?;
            let pid = Pid::from_raw(raw).ok_or(Errno::SRCH)?;
            // SAFETY: the kernel stored a fresh descriptor there, and nobody else knows of it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Cloned::Parent { pid, pidfd })
        }
        _ => Err(last()),
    }
}

/// Ends the calling process at once: no destructors, no buffers written.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
