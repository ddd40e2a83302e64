use std::ffi::CStr;

use rustix::fd::{AsRawFd as _, BorrowedFd};
use rustix::io::Errno;

/// Gives every signal its default action and unblocks all of them. Allocation-free.
pub(crate) fn reset_signals() {
    // SIGRTMAX of every Linux architecture we know.
    const LAST: i32 = 64;
    // The kernel's `sigaction` with default action, no flags and an empty mask is all zeroes. Raw, because the C library
    // refuses the two signals it keeps for itself, which whoever started us may have left ignored.
    let default = [0_u64; 4];
    for signal in 1..=LAST {
        // SAFETY: the action is as long as the kernel's struct on every 64-bit architecture; signals that can't be changed
        // answer an error, which is fine.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                size_of::<u64>(),
            )
        };
    }
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set it is given, and `sigprocmask` reads it afterwards.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Replaces this process with the program at `path`, with the one argument `name` and an empty environment.
/// Returns only where that failed. Allocation-free.
pub(crate) fn exec(path: &CStr, name: &CStr) -> Errno {
    let argv = [name.as_ptr(), std::ptr::null()];
    let envp = [std::ptr::null()];
    // SAFETY: both arrays end with a null pointer and, like the strings, live until the call is over.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// As [`exec`], of the program that is open as `program`. Allocation-free.
pub(crate) fn exec_at(program: BorrowedFd<'_>, name: &CStr) -> Errno {
    let argv = [name.as_ptr(), std::ptr::null()];
    let envp: [*const libc::c_char; 1] = [std::ptr::null()];
    // SAFETY: both arrays end with a null pointer and, like the strings, live until the call is over.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
