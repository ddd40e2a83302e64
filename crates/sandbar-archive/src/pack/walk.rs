use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::hooks::Hooks;
use crate::pack::attributes;
use crate::pack::encode::encode;
use crate::pack::links::{Links, Seen};
use crate::pack::{CHUNK, PackOwners, PackReport, written};
use crate::read::{Kind, Member, padding};
use crate::rules::{MAX_DEPTH, MAX_FOLDER_NAMES};
use crate::{ArchiveError, Progress};

/// Goes through a tree and writes its members.
pub(crate) struct Walk<'a, 'h, W> {
    owners: PackOwners,
    hooks: &'a mut Hooks<'h>,
    output: &'a mut W,
    report: PackReport,
    links: Links,
    /// Bytes of names that are held.
    held: usize,
    headers: Vec<u8>,
    chunk: Vec<u8>,
}

/// A folder that is gone through.
struct Level {
    folder: OwnedFd,
    /// What is left of it, the next one last.
    names: Vec<Box<[u8]>>,
    bytes: usize,
    /// Length of the folder's own name.
    path: usize,
}

impl<'a, 'h, W: Write> Walk<'a, 'h, W> {
    pub(crate) fn new(owners: PackOwners, hooks: &'a mut Hooks<'h>, output: &'a mut W) -> Self {
        Self {
            owners,
            hooks,
            output,
            report: PackReport::default(),
            links: Links::default(),
            held: 0,
            headers: Vec::new(),
            chunk: vec![0; CHUNK],
        }
    }

    pub(crate) fn run(mut self, tree: BorrowedFd<'_>, root: &[u8]) -> Result<PackReport, ArchiveError> {
        let status = fstat(tree).map_err(|error| ArchiveError::io("look at it", error).of(root))?;
        let mut path = root.to_vec();
        let mut levels = match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => {
                let copy = openat(tree, c".", FOLDER, Mode::empty())
                    .map_err(|error| ArchiveError::io("open it", error).of(root))?;
                vec![self.enter(copy, &status, &path)?]
            }
            FileType::RegularFile => {
                self.file(tree, &status, &path)?;
                Vec::new()
            }
            FileType::Symlink => {
                let target = readlinkat(tree, c"", Vec::new())
                    .map_err(|error| ArchiveError::io("read the link", error).of(root))?;
                self.member(&path, &status, Kind::Symlink(target.into_bytes()), None)?;
                Vec::new()
            }
            _ => {
                let text = "it is a socket, a pipe or a device, and nothing else was asked for";
                return Err(ArchiveError::refused(text).of(root));
            }
        };
        while let Some(level) = levels.last_mut() {
            self.hooks.check()?;
            path.truncate(level.path);
            let Some(name) = level.names.pop() else {
                self.held -= level.bytes;
                levels.pop();
                continue;
            };
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let below = self.entry(&level.folder, &name, &path).map_err(|error| error.of(&path))?;
            if let Some((folder, status)) = below {
                if levels.len() >= MAX_DEPTH {
                    let text = format!("it is more than {MAX_DEPTH} folders deep");
                    return Err(ArchiveError::limit(text).of(&path));
                }
                let level = self.enter(folder, &status, &path).map_err(|error| error.of(&path))?;
                levels.push(level);
            }
        }
        Ok(self.report)
    }

    /// Packs one entry, and answers the folder if it is one.
    fn entry(
        &mut self,
        holder: &OwnedFd,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<(OwnedFd, Stat)>, ArchiveError> {
        let status = match statat(holder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(self.vanished()),
            status => status.map_err(|error| ArchiveError::io("look at it", error))?,
        };
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => match openat(holder, name, FOLDER, Mode::empty()) {
                // It may have become something else since.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(self.vanished()),
                folder => {
                    let folder = folder.map_err(|error| ArchiveError::io("open it", error))?;
                    let status = fstat(&folder).map_err(|error| ArchiveError::io("look at it", error))?;
                    return Ok(Some((folder, status)));
                }
            },
            FileType::RegularFile => match openat(holder, name, FILE, Mode::empty()) {
                Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(self.vanished()),
                file => {
                    let file = file.map_err(|error| ArchiveError::io("open it", error))?;
                    let status = fstat(&file).map_err(|error| ArchiveError::io("look at it", error))?;
                    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
                        return Ok(self.vanished());
                    }
                    self.file(file.as_fd(), &status, path)?;
                }
            },
            FileType::Symlink => match readlinkat(holder, name, Vec::new()) {
                Err(Errno::NOENT | Errno::INVAL) => return Ok(self.vanished()),
                target => {
                    let target = target.map_err(|error| ArchiveError::io("read the link", error))?;
                    self.member(path, &status, Kind::Symlink(target.into_bytes()), None)?;
                }
            },
            _ => self.report.skipped += 1,
        }
        Ok(None)
    }

    fn vanished(&mut self) -> Option<(OwnedFd, Stat)> {
        self.report.vanished += 1;
        None
    }

    /// Packs the folder itself and reads what is in it.
    fn enter(&mut self, folder: OwnedFd, status: &Stat, path: &[u8]) -> Result<Level, ArchiveError> {
        // A folder's name ends with a slash, as every tar writes it.
        let mut name = path.to_vec();
        name.extend_from_slice(if path.is_empty() { b"./" } else { b"/" });
        self.member(&name, status, Kind::Folder, Some(folder.as_fd()))?;
        let list = |error| ArchiveError::io("list it", error);
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut bytes = 0;
        for entry in Dir::read_from(&folder).map_err(list)? {
            let entry = entry.map_err(list)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            names.push(name.into());
            bytes += name.len() + size_of::<Box<[u8]>>();
            if self.held + bytes > MAX_FOLDER_NAMES {
                let text = format!("the names in it and above it take more than {MAX_FOLDER_NAMES} bytes");
                return Err(ArchiveError::limit(text));
            }
        }
        names.sort_unstable_by(|one, other| other.cmp(one));
        self.held += bytes;
        Ok(Level { folder, names, bytes, path: path.len() })
    }

    fn file(&mut self, file: BorrowedFd<'_>, status: &Stat, path: &[u8]) -> Result<(), ArchiveError> {
        if status.st_nlink > 1 {
            match self.links.meet(status.st_dev, status.st_ino, path) {
                Seen::First => {}
                Seen::Before(name) => {
                    let name = name.to_vec();
                    return self.member(path, status, Kind::HardLink(name), None);
                }
                Seen::Forgotten => self.report.copied += 1,
            }
        }
        let size = u64::try_from(status.st_size).unwrap_or(0);
        self.member(path, status, Kind::File(size), Some(file))?;
        self.content(file, size)?;
        self.output.write_all(&[0; crate::read::BLOCK][..padding(size)]).map_err(written)
    }

    /// Exactly as many bytes as were announced.
    fn content(&mut self, file: BorrowedFd<'_>, size: u64) -> Result<(), ArchiveError> {
        let mut left = size;
        while left > 0 {
            self.hooks.check()?;
            let wanted = self.chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let chunk = &mut self.chunk[..wanted];
            let read = match rustix::io::read(file, &mut *chunk) {
                // What was announced is not there any more, and nothing else would be true.
                Ok(0) => {
                    let text =
                        format!("it became shorter while it was read: {left} of {size} bytes are gone");
                    return Err(ArchiveError::refused(text));
                }
                Err(Errno::INTR) => continue,
                read => read.map_err(|error| ArchiveError::io("read it", error))?,
            };
            self.output.write_all(&chunk[..read]).map_err(written)?;
            left -= read as u64;
            self.report.bytes += read as u64;
            self.tell();
        }
        let after = fstat(file).map_err(|error| ArchiveError::io("look at it", error))?;
        if u64::try_from(after.st_size).unwrap_or(0) != size {
            self.report.changed += 1;
        }
        Ok(())
    }

    /// Writes its headers. `file` is the open file whose extended attributes it has.
    fn member(
        &mut self,
        path: &[u8],
        status: &Stat,
        kind: Kind,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<(), ArchiveError> {
        let (uid, gid) = match self.owners {
            PackOwners::Zero => (0, 0),
            PackOwners::AsIs => (status.st_uid.into(), status.st_gid.into()),
        };
        let mut member = Member {
            path: path.to_vec(),
            kind,
            mode: status.st_mode & self.owners.rights(),
            uid,
            gid,
            mtime: (status.st_mtime, u32::try_from(status.st_mtime_nsec).unwrap_or(0)),
            xattrs: Vec::new(),
        };
        if let Some(file) = file {
            attributes::read(file, &mut member.xattrs)?;
        }
        self.headers.clear();
        encode(&member, &mut self.headers);
        self.output.write_all(&self.headers).map_err(written)?;
        self.report.entries += 1;
        self.tell();
        Ok(())
    }

    fn tell(&mut self) {
        self.hooks.tell(Progress { entries: self.report.entries, bytes: self.report.bytes });
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// It does not wait for the other end of what became a pipe.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
