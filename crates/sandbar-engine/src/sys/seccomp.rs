use rustix::io::Errno;

use crate::seccomp::Instruction;

const SECCOMP_SET_MODE_FILTER: u32 = 1;
const SECCOMP_GET_ACTION_AVAIL: u32 = 2;

#[repr(C)]
struct Program {
    len: u16,
    filter: *const Instruction,
}

/// Whether this kernel can filter system calls with an answer of our choice.
pub(crate) fn available() -> bool {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the operation reads one `u32`.
    unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0u32, &raw const action) == 0 }
}

/// Puts `filter` on this thread and all it starts, for good. Allocation-free.
pub(crate) fn install(filter: &[Instruction]) -> Result<(), Errno> {
    let len = u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?;
    let program = Program { len, filter: filter.as_ptr() };
    // SAFETY: `program` points at `len` instructions of the layout the kernel asks for.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0u32, &raw const program) };
    if answer == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
