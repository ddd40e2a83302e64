use std::ffi::CStr;

use rustix::fd::{AsRawFd as _, BorrowedFd};
use rustix::io::Errno;

/// Mount attributes of `mount_setattr(2)`, from `linux/mount.h`.
pub(crate) const ATTR_RDONLY: u64 = 0x1;
pub(crate) const ATTR_NOSUID: u64 = 0x2;
pub(crate) const ATTR_NODEV: u64 = 0x4;
pub(crate) const ATTR_NOEXEC: u64 = 0x8;
pub(crate) const ATTR_IDMAP: u64 = 0x0010_0000;

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Adds attributes to the mount that `dir` and `path` name (`path` empty: the mount of `dir` itself). With
/// [`ATTR_IDMAP`] in `set`, `userns` is the namespace whose map is applied.
pub(crate) fn mount_setattr(
    dir: BorrowedFd<'_>,
    path: &CStr,
    set: u64,
    userns: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let attr = MountAttr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: userns.map_or(0, |fd| u64::from(fd.as_raw_fd().cast_unsigned())),
    };
    // SAFETY: `path` ends with a zero byte, and `attr` has the layout and the size given.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if answer == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
