use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, fstat, mkdirat, openat, renameat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;
use sandbar_core::SandboxId;

use super::open::{PRIVATE, is_dir};
use super::{Home, Lock, StoredRecord, lock};
use crate::error::found;

/// Longest record that is written and read, in bytes. Its biggest parts are the environment that a template has (1 MiB) and labels (half of that); in JSON a
/// character takes six bytes at most.
const MAX_RECORD: usize = 12 << 20;
const RECORD: &str = "record.json";
const NEW_RECORD: &str = "record.json.new";

/// The folder of one sandbox.
#[derive(Debug)]
pub(crate) struct Folder {
    id: SandboxId,
    dir: OwnedFd,
}

impl Folder {
    /// Opens the folder of `id`; `None` means that there is positively none.
    pub(crate) fn open(home: &Home, id: &SandboxId) -> rustix::io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let dir = found(openat(home, place(id), flags, Mode::empty()))?;
        Ok(dir.map(|dir| Self { id: id.clone(), dir }))
    }

    /// Makes the folder of `id` and takes its lock; `None` means that the id is taken, or that somebody cleaned the new folder away between the
    /// two steps: try another id.
    pub(crate) fn create(home: &Home, id: &SandboxId) -> rustix::io::Result<Option<(Self, Lock)>> {
        match mkdirat(home, place(id), PRIVATE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(cause) => return Err(cause),
        }
        let taken = Self::open(home, id).and_then(|folder| match folder {
            Some(folder) => Ok(Lock::take(&folder)?.map(|lock| (folder, lock))),
            None => Ok(None),
        });
        match taken {
            Ok(Some((folder, lock))) if folder.is_in_place(home)? => Ok(Some((folder, lock))),
            Ok(_) => Ok(None),
            Err(cause) => {
                // A full disk, most likely: the folder without a lock is all there is.
                let _ = unlinkat(home, format!("{}/lock", place(id)), AtFlags::empty());
                let _ = unlinkat(home, place(id), AtFlags::REMOVEDIR);
                Err(cause)
            }
        }
    }

    /// The sandbox.
    pub(crate) fn id(&self) -> &SandboxId {
        &self.id
    }

    /// Whether this is still the folder that stands under its id.
    pub(crate) fn is_in_place(&self, home: &Home) -> rustix::io::Result<bool> {
        let mine = fstat(&self.dir)?;
        let there = found(statat(home, place(&self.id), AtFlags::SYMLINK_NOFOLLOW))?;
        Ok(there.is_some_and(|there| (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)))
    }

    /// Whether a shim holds the lock.
    pub(crate) fn shim_lives(&self) -> rustix::io::Result<bool> {
        lock::held(self)
    }

    /// The record; `None` means that there is positively none (yet, or any more).
    pub(crate) fn record(&self) -> std::io::Result<Option<StoredRecord>> {
        let Some(bytes) = self.read_file(RECORD, MAX_RECORD)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(std::io::Error::other)
    }

    /// A file in it, of `limit` bytes at most; `None` means that there is positively none.
    pub(crate) fn read_file(&self, name: &str, limit: usize) -> std::io::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let Some(file) = found(openat(&self.dir, name, flags, Mode::empty()))? else { return Ok(None) };
        read_bounded(&file, limit).map(Some)
    }

    /// Puts a file in the place of the one before: whole, or not at all, and never one that is longer than `limit`, as its readers take. Only the holder of
    /// the lock writes.
    pub(crate) fn replace_file(&self, name: &str, bytes: &[u8], limit: usize) -> std::io::Result<()> {
        check_length(bytes, limit)?;
        let new = format!("{name}.new");
        let done = self
            .write_file(&new, bytes)
            .and_then(|()| Ok(renameat(&self.dir, new.as_str(), &self.dir, name)?));
        if done.is_err() {
            let _ = unlinkat(&self.dir, new.as_str(), AtFlags::empty());
        }
        done
    }

    /// Replaces the record. Only the holder of the lock writes, so one temporary name is enough. A crash of the machine may lose the last
    /// write, never tear it: file systems flush a file before its rename replaces another (`auto_da_alloc` of ext4), and a sandbox does not
    /// outlive the machine's crash anyway.
    pub(crate) fn write_record(&self, record: &StoredRecord) -> std::io::Result<()> {
        let bytes = serde_json::to_vec(record)?;
        // What nobody could read would be in the way of all that looks at every sandbox.
        check_length(&bytes, MAX_RECORD)?;
        let done = self.write_file(NEW_RECORD, &bytes).and_then(|()| {
            if record.private.owner.is_some() {
                self.swap_record()?;
            } else {
                renameat(&self.dir, NEW_RECORD, &self.dir, RECORD)?;
            }
            Ok(())
        });
        if done.is_err() {
            let _ = unlinkat(&self.dir, NEW_RECORD, AtFlags::empty());
        }
        done
    }

    /// Puts the new record in the old one's place without the flush that a rename over a file brings: an owned sandbox ends with its maker, so
    /// nobody reads its record after the machine's crash. The old one stays as the place to write the next in: a file system that gives a block
    /// back and takes it again each time is slow.
    fn swap_record(&self) -> rustix::io::Result<()> {
        match renameat_with(&self.dir, NEW_RECORD, &self.dir, RECORD, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(()),
            // There is none yet, or the file system has no such exchange.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
                renameat(&self.dir, NEW_RECORD, &self.dir, RECORD)
            }
            Err(cause) => Err(cause),
        }
    }

    /// Opens a folder in it.
    pub(crate) fn open_dir(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(&self.dir, name, flags, Mode::empty())
    }

    /// Opens a log in it to append to.
    pub(crate) fn open_log(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// A path by which a socket in it can be bound or dialled, however deep the data folder is: a socket's address has room for 107 bytes.
    /// Good as long as `self` is open.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd()))
    }

    /// Removes a file in it, if it is there.
    pub(crate) fn remove_file(&self, name: &str) -> rustix::io::Result<()> {
        found(unlinkat(&self.dir, name, AtFlags::empty())).map(|_| ())
    }

    /// Removes the files in it as far as that can be done; it is on its way out.
    pub(crate) fn remove_files(&self) {
        let Ok(entries) = Dir::read_from(&self.dir) else { return };
        for entry in entries.filter_map(Result::ok) {
            if entry.file_type() != FileType::Directory {
                let _ = unlinkat(&self.dir, entry.file_name(), AtFlags::empty());
            }
        }
    }

    /// Whether there is an entry `name` in it that is a folder.
    pub(crate) fn has_dir(&self, name: &str) -> rustix::io::Result<bool> {
        Ok(found(statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW))?
            .is_some_and(|stat| is_dir(stat.st_mode)))
    }

    fn write_file(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        use std::io::Write;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut file = std::fs::File::from(openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(bytes)?;
        // Shorter than what was there, most likely: only what is over is given back.
        file.set_len(bytes.len() as u64)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// Where the folder of `id` is, from the data folder.
pub(super) fn place(id: &SandboxId) -> String {
    format!("sandboxes/{id}")
}

/// Refuses to write what a reader would refuse.
pub(super) fn check_length(bytes: &[u8], limit: usize) -> std::io::Result<()> {
    if bytes.len() <= limit {
        return Ok(());
    }
    let why = format!("it takes {} bytes, and {limit} are read of it at most", bytes.len());
    Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, why))
}

pub(super) fn read_bounded(file: &OwnedFd, limit: usize) -> std::io::Result<Vec<u8>> {
    let size = usize::try_from(fstat(file)?.st_size).unwrap_or(usize::MAX);
    if size > limit {
        return Err(std::io::Error::other(format!("it is larger than {limit} bytes")));
    }
    let mut bytes = vec![0; size + 1];
    let mut filled = 0;
    loop {
        let got = rustix::io::read(file, &mut bytes[filled..])?;
        filled += got;
        if got == 0 || filled == bytes.len() {
            bytes.truncate(filled);
            return Ok(bytes);
        }
    }
}
