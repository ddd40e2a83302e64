use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Makes this process one that never has to wait for children: those that end, orphans it inherited as PID 1
/// included, vanish by themselves. Statuses of commands come through their stubs.
#[expect(unsafe_code, reason = "the standard library can't set a signal's disposition")]
pub fn become_quiet_parent() {
    // SAFETY: ignoring a signal installs no handler. The two arguments are valid; it can't fail.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Makes a write above the limit on the size of files fail, where it would end this process.
#[expect(unsafe_code, reason = "the standard library can't set a signal's disposition")]
pub fn outlive_file_size_limit() {
    // SAFETY: ignoring a signal installs no handler. The two arguments are valid; it can't fail.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Keeps other processes of the same user from attaching to this one or reading its memory.
pub fn hide_from_ptrace() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}

/// Keeps the allocator from giving each thread a heap of its own, which it never shrinks below what was once used.
#[expect(unsafe_code, reason = "the allocator's own call")]
pub fn share_one_heap() {
    // SAFETY: takes integers only; to no effect where it comes too late.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives memory that the allocator holds without need back to the kernel.
#[expect(unsafe_code, reason = "the allocator's own call")]
pub fn release_free_memory() {
    // SAFETY: takes no pointer and is safe in every thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Signals of this process, to be read instead of handled.
#[derive(Debug)]
pub struct SignalQueue(OwnedFd);

#[expect(unsafe_code, reason = "signal sets and signalfd have no safe form")]
impl SignalQueue {
    /// Blocks these signals in the calling thread and queues them. To be called before other threads start.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is initialized by the first call before the others read it.
        let queue = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if queue < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(queue) }))
    }

    /// The next signal's number, or `None` where there is none now.
    pub fn take(&self) -> io::Result<Option<i32>> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has the size that is passed.
        let read = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if read < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        // SAFETY: zeroed is a valid value of this plain structure, and the kernel fills it as a whole.
        Ok(i32::try_from(unsafe { info.assume_init() }.ssi_signo).ok())
    }
}

impl AsFd for SignalQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
