use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{Gid, Mode, OFlags, Uid, XattrFlags};
use sandbar_wire::envd::{HttpError, METADATA_XATTR_PREFIX};

use super::encoding::Gunzip;
use crate::filesystem::{Context, make_parents};

/// `f_type` of procfs (`PROC_SUPER_MAGIC` in `linux/magic.h`).
const PROC_TYPE: i64 = 0x9fa0;
/// Mode of new files, before the umask.
const FILE_MODE: u32 = 0o666;

/// A file that is being uploaded. One that did not exist before vanishes again unless [`Target::commit`] is reached.
pub(super) struct Target {
    file: File,
    path: PathBuf,
    is_new: bool,
    gunzip: Option<Gunzip>,
    committed: bool,
}

impl Target {
    /// Opens the file, making it and its parents where they don't exist. What it held is gone, but it stays the same
    /// file for whoever has it open, is linked to it or watches it.
    pub(super) fn open(context: &Context, path: &Path, gzip: bool) -> Result<Self, HttpError> {
        let fail = |error: &io::Error| failed(path, error);
        if fs::metadata(path).is_ok_and(|meta| meta.is_dir()) {
            return Err(HttpError::new(400, format!("path '{}' is a directory", path.display())));
        }
        make_parents(context, path).map_err(|error| fail(&error))?;
        // Opening never waits, as a pipe without a reader would.
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = Mode::from_raw_mode(FILE_MODE);
        let (file, is_new) = match rustix::fs::open(path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(file) => (file, true),
            Err(rustix::io::Errno::EXIST) => {
                // The link of a dangling name is followed: then the file is new, but not by this name.
                let file = rustix::fs::open(path, flags | OFlags::CREATE, mode)
                    .map_err(|error| fail(&error.into()))?;
                (file, false)
            }
            Err(error) => return Err(fail(&error.into())),
        };
        let target = Self {
            file: File::from(file),
            path: path.to_owned(),
            is_new,
            gunzip: gzip.then(Gunzip::new),
            committed: false,
        };
        let meta = target.file.metadata().map_err(|error| fail(&error))?;
        if !meta.is_file() {
            return Err(HttpError::new(400, format!("path '{}' is not a regular file", path.display())));
        }
        // Something inside may have put a link to the agent's own settings where the caller thinks a file is.
        if rustix::fs::fstatfs(&target.file).is_ok_and(|stat| stat.f_type == PROC_TYPE) {
            return Err(HttpError::new(403, format!("path '{}' is in the kernel's `/proc`", path.display())));
        }
        if let Some((uid, gid)) = context.owner {
            rustix::fs::fchown(&target.file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
                .map_err(|error| fail(&error.into()))?;
        }
        if !is_new {
            target.file.set_len(0).map_err(|error| fail(&error))?;
        }
        Ok(target)
    }

    pub(super) fn write(&mut self, pieces: &[Bytes]) -> Result<(), HttpError> {
        for piece in pieces {
            let file = &mut self.file;
            match &mut self.gunzip {
                None => file.write_all(piece).map_err(|error| failed(&self.path, &error))?,
                Some(gunzip) => {
                    let mut disk = None;
                    let result = gunzip.piece(piece, |bytes| {
                        file.write_all(bytes).inspect_err(|error| disk = Some(io::Error::from(error.kind())))
                    });
                    result.map_err(|error| match disk {
                        Some(disk) => failed(&self.path, &disk),
                        None => bad_gzip(&error),
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Ends the upload and stores its metadata in place of earlier metadata.
    pub(super) fn commit(mut self, metadata: &BTreeMap<String, String>) -> Result<(), HttpError> {
        if let Some(gunzip) = self.gunzip.take() {
            let rest = gunzip.finish().map_err(|error| bad_gzip(&error))?;
            self.file.write_all(&rest).map_err(|error| failed(&self.path, &error))?;
        }
        set_metadata(&self.file, metadata).map_err(|error| failed(&self.path, &error))?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.is_new && !self.committed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn bad_gzip(error: &io::Error) -> HttpError {
    HttpError::new(400, format!("the body is not valid gzip: {error}"))
}

fn set_metadata(file: &File, metadata: &BTreeMap<String, String>) -> io::Result<()> {
    let mut list = vec![0; 64 << 10];
    let length = rustix::fs::flistxattr(file, &mut list).unwrap_or(0);
    for name in list[..length].split(|byte| *byte == 0) {
        if name.starts_with(METADATA_XATTR_PREFIX.as_bytes()) {
            rustix::fs::fremovexattr(file, name)?;
        }
    }
    for (key, value) in metadata {
        let name = format!("{METADATA_XATTR_PREFIX}{key}");
        rustix::fs::fsetxattr(file, name, value.as_bytes(), XattrFlags::empty())?;
    }
    Ok(())
}

/// Whether an error is that of the kernel.
pub(super) fn is(error: &io::Error, errno: rustix::io::Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Maps a failed write, in one place.
pub(super) fn failed(path: &Path, error: &io::Error) -> HttpError {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            HttpError::new(507, format!("write '{path}': not enough disk space available"))
        }
        io::ErrorKind::PermissionDenied => HttpError::new(403, format!("write '{path}': permission denied")),
        io::ErrorKind::ReadOnlyFilesystem => {
            HttpError::new(403, format!("write '{path}': the file system is read-only"))
        }
        io::ErrorKind::NotADirectory => {
            HttpError::new(400, format!("write '{path}': a part of the path is not a directory"))
        }
        _ if is(error, rustix::io::Errno::LOOP) => {
            HttpError::new(400, format!("path '{path}' is a cyclic symbolic link"))
        }
        // What opening a pipe without a reader, or a socket, is answered with.
        _ if is(error, rustix::io::Errno::NXIO) => {
            HttpError::new(400, format!("path '{path}' is not a regular file"))
        }
        io::ErrorKind::NotFound => HttpError::new(404, format!("path '{path}' does not exist")),
        io::ErrorKind::InvalidFilename => {
            HttpError::new(400, format!("write '{path}': the name is too long"))
        }
        _ => HttpError::new(500, format!("write '{path}': {error}")),
    }
}
