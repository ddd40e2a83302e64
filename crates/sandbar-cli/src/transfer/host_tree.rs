use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2, readlinkat,
    statat,
};

use crate::tar::{END, Kind, Member, encode, padding};
use crate::transfer::landing::Top;
use crate::transfer::meter::Meter;

/// About how many bytes come out at once.
const CHUNK: usize = 256 * 1024;

/// Files up to this many bytes are read before they are announced: those below `/proc` and `/sys` have another size than they say.
const SMALL: u64 = 64 * 1024;
/// Least bytes asked for at once of such a file: a page, which is what the kernel makes up at a time.
const SMALL_ROOM: usize = 4096;
/// Most bytes of such a file. More than the kernel makes up in one; what still grows then is being written to.
const MAX_SMALL: usize = 16 << 20;

/// A tree of this machine as a tar stream whose one top member is `root`. Follows the link that the typed path may be, and none below it.
#[derive(Debug)]
pub(super) struct HostTree {
    source: PathBuf,
    top: OwnedFd,
    root: Vec<u8>,
    /// Folders still to be read, relative to `top`.
    folders: Vec<PathBuf>,
    /// The folder being read, and what is left in it.
    open: Option<Folder>,
    file: Option<OpenFile>,
    /// Where files with several names were first met.
    links: HashMap<(u64, u64), Vec<u8>>,
    ended: bool,
    meter: Meter,
}

#[derive(Debug)]
struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    names: Vec<CString>,
}

#[derive(Debug)]
struct OpenFile {
    fd: OwnedFd,
    path: PathBuf,
    left: u64,
    padding: usize,
}

impl HostTree {
    pub(super) fn open(source: &Path, root: &str, meter: &Meter) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let top = open(source, flags, Mode::empty())?;
        Ok(Self {
            source: source.to_owned(),
            top,
            root: root.as_bytes().to_vec(),
            folders: vec![PathBuf::new()],
            open: None,
            file: None,
            links: HashMap::new(),
            ended: false,
            meter: meter.clone(),
        })
    }

    pub(super) fn top(&self) -> io::Result<Top> {
        match FileType::from_raw_mode(fstat(&self.top)?.st_mode) {
            FileType::RegularFile => Ok(Top::File),
            FileType::Directory => Ok(Top::Folder),
            other => Err(self.special(Path::new(""), other)),
        }
    }

    /// The next bytes of the stream; `None` at its end.
    pub(super) fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut chunk = Vec::with_capacity(CHUNK + 4096);
        while chunk.len() < CHUNK && !self.ended {
            self.step(&mut chunk)?;
        }
        Ok(if chunk.is_empty() { None } else { Some(chunk.into()) })
    }

    fn step(&mut self, chunk: &mut Vec<u8>) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            let (before, ended) = (chunk.len(), file.copy(chunk)?);
            self.meter.bytes(chunk.len() - before);
            if ended {
                chunk.resize(chunk.len() + file.padding, 0);
                self.file = None;
            }
            return Ok(());
        }
        if let Some(folder) = &mut self.open {
            match folder.names.pop() {
                Some(name) => self.entry(&name, chunk)?,
                None => self.open = None,
            }
            return Ok(());
        }
        match self.folders.pop() {
            Some(path) if path.as_os_str().is_empty() => self.start(chunk),
            Some(path) => self.folder(path, chunk),
            None => {
                chunk.extend_from_slice(&END);
                self.ended = true;
                Ok(())
            }
        }
    }

    fn start(&mut self, chunk: &mut Vec<u8>) -> io::Result<()> {
        match self.top()? {
            Top::Folder => self.folder(PathBuf::new(), chunk),
            Top::File => self.begin_file(self.top.try_clone()?, Path::new(""), chunk),
        }
    }

    fn folder(&mut self, path: PathBuf, chunk: &mut Vec<u8>) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let here = if path.as_os_str().is_empty() { Path::new(".") } else { path.as_path() };
        let fd =
            openat2(&self.top, here, flags, Mode::empty(), inside).map_err(|e| self.at(&path, &e.into()))?;
        let stat = fstat(&fd).map_err(|e| self.at(&path, &e.into()))?;
        encode(&self.member(&path, &stat, Kind::Directory), chunk);
        let mut names = Vec::new();
        for entry in Dir::read_from(&fd).map_err(|e| self.at(&path, &e.into()))? {
            let entry = entry.map_err(|e| self.at(&path, &e.into()))?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(entry.file_name().to_owned());
            }
        }
        // Taken from the end: the stream has them in order.
        names.sort_unstable_by(|a, b| b.cmp(a));
        self.open = Some(Folder { fd, path, names });
        Ok(())
    }

    fn entry(&mut self, name: &CString, chunk: &mut Vec<u8>) -> io::Result<()> {
        let Some(folder) = &self.open else { return Ok(()) };
        let path = folder.path.join(OsStr::from_bytes(name.to_bytes()));
        let stat =
            statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| self.at(&path, &e.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.folders.push(path),
            FileType::Symlink => {
                let target =
                    readlinkat(&folder.fd, name, Vec::new()).map_err(|e| self.at(&path, &e.into()))?;
                encode(&self.member(&path, &stat, Kind::Symlink(target.into_bytes())), chunk);
            }
            FileType::RegularFile => {
                let flags =
                    OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                let fd =
                    openat(&folder.fd, name, flags, Mode::empty()).map_err(|e| self.at(&path, &e.into()))?;
                self.begin_file(fd, &path, chunk)?;
            }
            other => return Err(self.special(&path, other)),
        }
        Ok(())
    }

    fn begin_file(&mut self, fd: OwnedFd, path: &Path, chunk: &mut Vec<u8>) -> io::Result<()> {
        let stat = fstat(&fd).map_err(|e| self.at(path, &e.into()))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::RegularFile {
            return Err(self.special(path, kind));
        }
        if stat.st_nlink > 1 {
            let first = self.links.get(&(stat.st_dev, stat.st_ino)).cloned();
            if let Some(first) = first {
                encode(&self.member(path, &stat, Kind::HardLink(first)), chunk);
                return Ok(());
            }
            self.links.insert((stat.st_dev, stat.st_ino), self.name(path));
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size <= SMALL {
            let content = read_whole(&fd, size).map_err(|e| self.at(path, &e))?;
            self.meter.bytes(content.len());
            let size = content.len() as u64;
            encode(&self.member(path, &stat, Kind::File(size)), chunk);
            chunk.extend_from_slice(&content);
            chunk.resize(chunk.len() + padding(size), 0);
            return Ok(());
        }
        encode(&self.member(path, &stat, Kind::File(size)), chunk);
        let path = self.full(path);
        self.file = Some(OpenFile { fd, path, left: size, padding: padding(size) });
        Ok(())
    }

    fn member(&self, path: &Path, stat: &Stat, kind: Kind) -> Member {
        self.meter.file();
        // Privilege bits stay here.
        Member { path: self.name(path), mode: stat.st_mode & 0o777, mtime: stat.st_mtime, kind }
    }

    /// A path's name in the stream.
    fn name(&self, path: &Path) -> Vec<u8> {
        let mut name = self.root.clone();
        if !path.as_os_str().is_empty() {
            name.push(b'/');
            name.extend_from_slice(path.as_os_str().as_bytes());
        }
        name
    }

    /// A path as a person knows it.
    fn full(&self, path: &Path) -> PathBuf {
        // Joining nothing would add a slash.
        if path.as_os_str().is_empty() { self.source.clone() } else { self.source.join(path) }
    }

    fn at(&self, path: &Path, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("`{}`: {error}", self.full(path).display()))
    }

    fn special(&self, path: &Path, kind: FileType) -> io::Error {
        let kind = match kind {
            FileType::Socket => "a socket",
            FileType::Fifo => "a named pipe",
            FileType::BlockDevice | FileType::CharacterDevice => "a device",
            _ => "not a file, folder or link",
        };
        let error =
            io::Error::new(io::ErrorKind::InvalidInput, format!("it is {kind}, which can't be copied"));
        self.at(path, &error)
    }
}

impl OpenFile {
    /// Copies some of it and says whether that was the last of it.
    fn copy(&mut self, chunk: &mut Vec<u8>) -> io::Result<bool> {
        let complain = |how| {
            let message = format!("`{}`: it became {how} while it was read", self.path.display());
            Err(io::Error::other(message))
        };
        let read = read(&self.fd, chunk, CHUNK)?;
        match (read as u64, self.left) {
            // Its end is looked for, not only counted to.
            (0, 0) => return Ok(true),
            (0, _) => return complain("shorter"),
            (read, left) if read > left => return complain("longer"),
            (read, _) => self.left -= read,
        }
        Ok(false)
    }
}

/// All of a small file, up to its end, wherever that is.
fn read_whole(fd: &OwnedFd, size: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // One read more than the content takes finds its end.
    let room = usize::try_from(size).unwrap_or(0).max(SMALL_ROOM) + 1;
    while read(fd, &mut content, room)? > 0 {
        if content.len() > MAX_SMALL {
            return Err(io::Error::other("it became longer while it was read"));
        }
    }
    Ok(content)
}

/// Appends what one read gives, which is at least asked for `room` bytes.
fn read(fd: &OwnedFd, into: &mut Vec<u8>, room: usize) -> io::Result<usize> {
    into.reserve(room);
    loop {
        match rustix::io::read(fd, spare_capacity(into)) {
            Err(rustix::io::Errno::INTR) => {}
            read => return Ok(read?),
        }
    }
}

#[cfg(test)]
mod tests;
