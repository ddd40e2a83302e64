use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// `FS_IOC_FSGETXATTR` of `linux/fs.h`.
const GET_ATTRIBUTES: libc::c_ulong = 0x801c_581f;

/// `struct fsxattr` of `linux/fs.h`: what a file system keeps of a file besides what `stat` tells.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct InodeAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// The flags, sizes and project of a file; `None` where its file system has none.
pub(crate) fn inode_attributes(file: BorrowedFd<'_>) -> Result<Option<InodeAttributes>, Errno> {
    let mut attributes = InodeAttributes::default();
    // SAFETY: the request writes one such struct (its number holds the size) to where the pointer shows.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), GET_ATTRIBUTES as _, &raw mut attributes) };
    if done == 0 {
        // How many pieces it is stored in is nothing that it carries along.
        return Ok(Some(InodeAttributes { extents: 0, ..attributes }));
    }
    match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
        Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL => Ok(None),
        cause => Err(cause),
    }
}
