//! System calls that `rustix` does not wrap.

use rustix::io::Errno;
use rustix::process::Pid;

/// `KCMP_FILES` of the kernel's `kcmp.h`.
const KCMP_FILES: libc::c_long = 2;
/// Standard input, output and error stay.
const FIRST: i32 = 3;

/// Closes everything but the standard descriptors and `keep`; negative numbers in it stand for nothing.
#[expect(unsafe_code, reason = "a raw system call")]
pub(crate) fn close_others<const N: usize>(mut keep: [i32; N]) -> Result<(), Errno> {
    keep.sort_unstable();
    let mut first = FIRST;
    for next in keep.into_iter().filter(|number| *number >= FIRST).chain([i32::MAX]) {
        if first < next {
            // SAFETY: the counter's own copy of the table; it uses nothing but `keep` from here on, and ends without
            // running destructors.
            check(unsafe { libc::syscall(libc::SYS_close_range, first, next - 1, 0) })?;
        }
        first = next.saturating_add(1);
    }
    Ok(())
}

/// Whether two threads have the same table of descriptors; `false` also where the kernel does not tell.
#[expect(unsafe_code, reason = "a raw system call")]
pub(super) fn same_files(one: Pid, other: i32) -> bool {
    // SAFETY: plain integers in, no memory involved.
    let answer = unsafe {
        libc::syscall(libc::SYS_kcmp, one.as_raw_nonzero().get(), other, KCMP_FILES, 0_usize, 0_usize)
    };
    answer == 0
}

fn check(answer: libc::c_long) -> Result<(), Errno> {
    if answer >= 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
