//! The extended attributes of what is packed: those of users.

use std::os::fd::BorrowedFd;

use rustix::fs::{fgetxattr, flistxattr, flistxattr_query};
use rustix::io::Errno;

use crate::ArchiveError;
use crate::rules::MAX_HEADER;

/// Longest list of names and longest value, in bytes (`XATTR_LIST_MAX` and `XATTR_SIZE_MAX` of Linux).
const MAX_ATTRIBUTE: usize = 65_536;
/// Most bytes of the attributes of one member: half of what is read of its headers, so that its names fit beside them.
const MAX_ATTRIBUTES: u64 = MAX_HEADER / 2;

/// Reads them into `into`. The overlay's own words among them stay behind.
pub(crate) fn read(file: BorrowedFd<'_>, into: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), ArchiveError> {
    // Most files have none, and this asks for no room.
    match flistxattr_query(file) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(()),
        Ok(_) => {}
        Err(error) => return Err(ArchiveError::io("list its extended attributes", error)),
    }
    let mut names = vec![0; MAX_ATTRIBUTE];
    let length = flistxattr(file, &mut names[..])
        .map_err(|error| ArchiveError::io("list its extended attributes", error))?;
    let mut value = vec![0; MAX_ATTRIBUTE];
    let mut bytes = 0;
    for name in names[..length].split(|byte| *byte == 0) {
        if !name.starts_with(b"user.") || name.starts_with(b"user.overlay.") {
            continue;
        }
        if name.contains(&b'=') {
            let text = format!("its extended attribute `{}` has a `=` in its name", name.escape_ascii());
            return Err(ArchiveError::refused(text));
        }
        let length = match fgetxattr(file, name, &mut value[..]) {
            // Gone since.
            Err(Errno::NODATA) => continue,
            length => length.map_err(|error| ArchiveError::io("read an extended attribute", error))?,
        };
        bytes += (name.len() + length) as u64;
        if bytes > MAX_ATTRIBUTES {
            let text = format!("its extended attributes take more than {MAX_ATTRIBUTES} bytes");
            return Err(ArchiveError::limit(text));
        }
        into.push((name.to_vec(), value[..length].to_vec()));
    }
    Ok(())
}
