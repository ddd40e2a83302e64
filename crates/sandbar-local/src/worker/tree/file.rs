use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, chownat, copy_file_range, fchmod,
    fchown, fstat, ftruncate, futimens, ioctl_ficlone, openat, readlinkat, seek, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::{copy_xattrs, size_of};
use crate::worker::job::Failure;

/// How much is copied between two looks at how far it is, in bytes.
const PIECE: u64 = 8 << 20;
/// What is copied at once where the kernel can't do it by itself, in bytes.
const CHUNK: usize = 256 * 1024;
/// Permission bits of a file: those that give no privileges.
const FILE_BITS: u32 = 0o777;
/// Those of a folder: the sticky bit as well.
const FOLDER_BITS: u32 = 0o1777;

/// How files are copied: what did not work once is not tried again.
#[derive(Debug)]
pub(in crate::worker) struct Copier {
    clones: bool,
    ranges: bool,
    /// Whether there are more ids than one.
    pub(super) has_ids: bool,
    /// Whose all becomes; else it is whose it was.
    owner: Option<u32>,
}

/// A file that was copied.
pub(super) struct Copied {
    pub(super) bytes: u64,
    pub(super) shared: bool,
}

impl Copier {
    pub(in crate::worker) fn new(owner: Option<u32>) -> Self {
        Self { clones: true, ranges: true, has_ids: rustix::process::getuid().is_root(), owner }
    }

    /// Copies a regular file, which was as `seen`; `told` is called with the bytes of each piece.
    pub(super) fn file(
        &mut self,
        from: (&OwnedFd, &CStr),
        to: &OwnedFd,
        path: &[u8],
        told: &mut dyn FnMut(u64),
    ) -> Result<Copied, Failure> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source =
            openat(from.0, from.1, flags, Mode::empty()).map_err(|cause| Failure::io("open", path, cause))?;
        let stat = fstat(&source).map_err(|cause| Failure::io("look at", path, cause))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = openat(to, from.1, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|cause| Failure::io("make", path, cause))?;
        let shared = size_of(&stat) > 0 && self.share(&source, &target);
        if shared {
            told(size_of(&stat));
        } else {
            self.content(&source, &target, size_of(&stat), told)
                .map_err(|cause| Failure::io("copy", path, cause))?;
        }
        self.dress(&target, &stat, FILE_BITS, path)?;
        copy_xattrs(&source, &target, path)?;
        futimens(&target, &times(&stat)).map_err(|cause| Failure::io("set the times of", path, cause))?;
        Ok(Copied { bytes: size_of(&stat), shared })
    }

    /// Rights, attributes and times of a folder, once all is in it.
    pub(in crate::worker) fn finish_folder(
        &self,
        from: &OwnedFd,
        to: &OwnedFd,
        path: &[u8],
    ) -> Result<(), Failure> {
        let stat = fstat(from).map_err(|cause| Failure::io("look at", path, cause))?;
        copy_xattrs(from, to, path)?;
        self.dress(to, &stat, FOLDER_BITS, path)?;
        futimens(to, &times(&stat)).map_err(|cause| Failure::io("set the times of", path, cause))
    }

    pub(super) fn link(
        &self,
        from: (&OwnedFd, &CStr),
        to: &OwnedFd,
        stat: &Stat,
        path: &[u8],
    ) -> Result<(), Failure> {
        let name = from.1;
        let target =
            readlinkat(from.0, name, Vec::new()).map_err(|cause| Failure::io("read", path, cause))?;
        symlinkat(&target, to, name).map_err(|cause| Failure::io("make", path, cause))?;
        if self.has_ids {
            let (uid, gid) = self.owner(stat);
            chownat(to, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|cause| Failure::io("set the owner of", path, cause))?;
        }
        utimensat(to, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|cause| Failure::io("set the times of", path, cause))
    }

    /// Owner, then rights: a change of the owner takes some away.
    fn dress(&self, file: &OwnedFd, stat: &Stat, bits: u32, path: &[u8]) -> Result<(), Failure> {
        if self.has_ids {
            let (uid, gid) = self.owner(stat);
            fchown(file, Some(uid), Some(gid))
                .map_err(|cause| Failure::io("set the owner of", path, cause))?;
        }
        fchmod(file, Mode::from_raw_mode(stat.st_mode & bits))
            .map_err(|cause| Failure::io("set the rights of", path, cause))
    }

    /// As the file is seen: what belongs to an id that is not mapped is nobody's, here and there.
    fn owner(&self, stat: &Stat) -> (Uid, Gid) {
        let id = |of| self.owner.unwrap_or(of);
        (Uid::from_raw(id(stat.st_uid)), Gid::from_raw(id(stat.st_gid)))
    }

    fn share(&mut self, from: &OwnedFd, to: &OwnedFd) -> bool {
        if !self.clones {
            return false;
        }
        match ioctl_ficlone(to, from) {
            Ok(()) => true,
            // One file may be in a state that can't be shared; that none can is said by these.
            Err(Errno::NOTSUP | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) => {
                self.clones = false;
                false
            }
            Err(_) => false,
        }
    }

    /// Copies what is in a file; holes stay holes.
    fn content(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        size: u64,
        told: &mut dyn FnMut(u64),
    ) -> Result<(), Errno> {
        ftruncate(to, size)?;
        let mut at = 0;
        while at < size {
            let start = match seek(from, SeekFrom::Data(at)) {
                Ok(start) => start.min(size),
                // Nothing but a hole follows.
                Err(Errno::NXIO) => size,
                // This file system knows no holes.
                Err(Errno::INVAL | Errno::NOTSUP) => at,
                Err(cause) => return Err(cause),
            };
            if start >= size {
                break;
            }
            let end = match seek(from, SeekFrom::Hole(start)) {
                Ok(end) => end.min(size),
                Err(Errno::INVAL | Errno::NXIO | Errno::NOTSUP) => size,
                Err(cause) => return Err(cause),
            };
            at = start;
            while at < end {
                let copied = self.piece(from, to, at, (end - at).min(PIECE))?;
                if copied == 0 {
                    // It was cut off meanwhile.
                    return ftruncate(to, at);
                }
                at += copied;
                told(copied);
            }
        }
        Ok(())
    }

    fn piece(&mut self, from: &OwnedFd, to: &OwnedFd, at: u64, length: u64) -> Result<u64, Errno> {
        if self.ranges {
            let (mut read_at, mut write_at) = (at, at);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            match copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), length) {
                // Files of some file systems that are made up on reading seem empty to this call.
                Ok(0) | Err(Errno::INTR) => {}
                Ok(copied) => return Ok(copied as u64),
                Err(Errno::XDEV | Errno::NOSYS | Errno::NOTSUP | Errno::INVAL | Errno::PERM) => {
                    self.ranges = false;
                }
                Err(cause) => return Err(cause),
            }
        }
        let mut chunk = vec![0; CHUNK.min(usize::try_from(length).unwrap_or(CHUNK))];
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(from, &mut chunk[..], at))?;
        let mut written = 0;
        while written < read {
            let rest = &chunk[written..read];
            written += rustix::io::retry_on_intr(|| rustix::io::pwrite(to, rest, at + written as u64))?;
        }
        Ok(read as u64)
    }
}

fn times(stat: &Stat) -> Timestamps {
    // Each is within a second by the kernel's own rule.
    let of = |seconds: i64, nanos: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanos).unwrap_or_default(),
    };
    Timestamps {
        last_access: of(stat.st_atime, stat.st_atime_nsec),
        last_modification: of(stat.st_mtime, stat.st_mtime_nsec),
    }
}
