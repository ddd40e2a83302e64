use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, memfd_create, seek};

use crate::error::Error;

/// A file in memory with `bytes` in it that nobody can change any more, positioned at its start, close-on-exec.
pub fn sealed_memfd(bytes: &[u8]) -> Result<OwnedFd, Error> {
    let fail = |cause| Error::io("make a sealed file in memory", "", cause);
    // An old kernel without the no-exec seal (before 6.3) refuses the flag.
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create("sandbar", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| memfd_create("sandbar", flags))
        .map_err(fail)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&fd, rest).map_err(fail)?;
        rest = &rest[written..];
    }
    seek(&fd, SeekFrom::Start(0)).map_err(fail)?;
    fcntl_add_seals(&fd, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)
        .map_err(fail)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn reads_back_and_refuses_writes() {
        let fd = sealed_memfd(b"{\"v\":1}").unwrap();
        let mut buffer = [0; 16];
        let n = rustix::io::read(&fd, &mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"{\"v\":1}");
        assert_eq!(rustix::io::write(&fd, b"x"), Err(Errno::PERM));
    }
}
