use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

// Requests of `linux/btrfs.h`; each holds its struct's size.
const SNAP_CREATE: libc::c_ulong = 0x5000_9401;
const SUBVOL_CREATE: libc::c_ulong = 0x5000_940e;
const SNAP_DESTROY: libc::c_ulong = 0x5000_940f;

/// Bytes of a name in a request, its end included.
const NAME_BYTES: usize = 4088;

/// `struct btrfs_ioctl_vol_args`.
#[repr(C)]
struct VolumeArguments {
    fd: i64,
    name: [u8; NAME_BYTES],
}

/// Makes an empty subvolume `name` in `parent`, with the mode that the umask leaves.
pub(crate) fn subvolume_create(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    request(parent, SUBVOL_CREATE, name, None)
}

/// Makes `name` in `parent` a writable snapshot of the subvolume whose top folder `source` is.
pub(crate) fn subvolume_snapshot(
    source: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    name: &CStr,
) -> Result<(), Errno> {
    request(parent, SNAP_CREATE, name, Some(source))
}

/// Removes the subvolume `name` in `parent` with all that is in it. Allocates nothing.
pub(crate) fn subvolume_destroy(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    request(parent, SNAP_DESTROY, name, None)
}

fn request(
    parent: BorrowedFd<'_>,
    request: libc::c_ulong,
    name: &CStr,
    source: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let name = name.to_bytes();
    if name.len() >= NAME_BYTES {
        return Err(Errno::NAMETOOLONG);
    }
    let fd = source.map_or(0, |source| i64::from(source.as_raw_fd()));
    let mut arguments = VolumeArguments { fd, name: [0; NAME_BYTES] };
    arguments.name[..name.len()].copy_from_slice(name);
    // SAFETY: the requests read one such struct (their numbers hold its size) from where the pointer shows; the name in it ends with a zero.
    let done = unsafe { libc::ioctl(parent.as_raw_fd(), request as _, &raw const arguments) };
    if done == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
