use rustix::io::Errno;

/// Sets real, effective and saved user and group of this process. Raw calls: the C library's own would signal every
/// thread it believes to exist, which is wrong after [`super::clone`].
pub(crate) fn set_ids(uid: u32, gid: u32) -> Result<(), Errno> {
    // SAFETY: plain integers in, no memory involved.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
}

/// Sets the effective user alone; real and saved stay.
pub(crate) fn set_effective(uid: u32) -> Result<(), Errno> {
    const UNCHANGED: u32 = u32::MAX;
    // SAFETY: plain integers in, no memory involved.
    check(unsafe { libc::syscall(libc::SYS_setresuid, UNCHANGED, uid, UNCHANGED) })
}

/// Drops all supplementary groups.
pub(crate) fn clear_groups() -> Result<(), Errno> {
    // SAFETY: a length of zero means the pointer is not read.
    check(unsafe { libc::syscall(libc::SYS_setgroups, 0usize, std::ptr::null::<u32>()) })
}

fn check(answer: libc::c_long) -> Result<(), Errno> {
    if answer == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
