use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, SeekFrom, Timespec, Timestamps, UTIME_NOW,
    fchmod, ftruncate, futimens, linkat, mkdirat, open, openat, openat2, renameat_with, seek, statat,
    symlinkat,
};
use rustix::io::Errno;

use crate::tar::{Kind, Member};
use crate::transfer::{MAX_MEMBERS, MAX_NAMES, temporary_name, too_many_names};
use crate::value::{Existing, Placement};

/// Most bytes of one copy as written, holes not counted: a hostile sandbox could otherwise use up the disk of this machine.
const MAX_BYTES: u64 = 1 << 40;
/// Runs of this many zero bytes become holes: the block size of the usual file systems.
const HOLE: usize = 4096;

/// A tree from a sandbox on its way to its place on this machine. Everything in it is hostile: nothing is made outside the temporary folder,
/// and no link in it is followed.
#[derive(Debug)]
pub(super) struct Unpacking {
    parent: OwnedFd,
    parent_path: PathBuf,
    /// The final name below the parent.
    name: OsString,
    existing: Existing,
    /// The temporary folder's name below the parent; `None` once it is removed.
    temporary: Option<String>,
    folder: OwnedFd,
    /// The name that every member has to start with.
    root: Vec<u8>,
    file: Option<OpenFile>,
    /// Folders made, whose modes and times are set at the end.
    folders: Vec<(PathBuf, u32, i64)>,
    /// Bytes of their paths.
    name_bytes: usize,
    top: Option<FileType>,
    members: u64,
    bytes: u64,
}

#[derive(Debug)]
struct OpenFile {
    fd: OwnedFd,
    time: Timespec,
    size: Size,
    /// Where the next content goes.
    offset: u64,
}

/// How large a file is to be.
#[derive(Debug)]
enum Size {
    /// This much of it is still to come.
    Left(u64),
    /// As large as what comes.
    Open,
}

impl Unpacking {
    /// Makes a temporary folder beside the destination for a tree named `root` in the sandbox.
    pub(super) fn start(
        target: &Path,
        placement: Placement,
        existing: Existing,
        root: &[u8],
    ) -> io::Result<Self> {
        let (parent_path, name) = destination(target, placement, existing, root)?;
        let at = |error: Errno| annotate(&parent_path, &error.into());
        let parent = open(&parent_path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(at)?;
        let temporary = temporary_name("out").map_err(io::Error::other)?;
        mkdirat(&parent, &temporary, Mode::RWXU).map_err(at)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&parent, &temporary, flags, Mode::empty()).map_err(at)?;
        Ok(Self {
            parent,
            parent_path,
            name,
            existing,
            temporary: Some(temporary),
            folder,
            root: root.to_vec(),
            file: None,
            folders: Vec::new(),
            name_bytes: 0,
            top: None,
            members: 0,
            bytes: 0,
        })
    }

    pub(super) fn member(&mut self, member: &Member) -> io::Result<()> {
        self.close_file()?;
        self.members += 1;
        if self.members > MAX_MEMBERS {
            return Err(hostile(&member.path, "it is one of more than 4,000,000"));
        }
        let path = self.inside(&member.path)?;
        let (holder, name) = self.holder(&path).map_err(|error| named(&member.path, &error))?;
        let made = match &member.kind {
            Kind::Directory => self.make_folder(&holder, &name, &path, member),
            Kind::File(size) => self.make_file(&holder, &name, *size, member),
            Kind::Symlink(target) => symlinkat(OsStr::from_bytes(target), &holder, &name)
                .map(|()| FileType::Symlink)
                .map_err(Into::into),
            Kind::HardLink(target) => self.make_link(&holder, &name, target),
            Kind::Other(_) => {
                Err(io::Error::other("it is not a file, folder or link, which can't be copied"))
            }
        };
        let made = made.map_err(|error| named(&member.path, &error))?;
        self.top.get_or_insert(made);
        Ok(())
    }

    /// The tree is one file, of as much content as comes.
    pub(super) fn plain_file(&mut self, mode: u32, modified: Option<Timestamp>) -> io::Result<()> {
        let time = modified.map_or(Timespec { tv_sec: 0, tv_nsec: UTIME_NOW }, |modified| Timespec {
            tv_sec: modified.as_second(),
            tv_nsec: modified.subsec_nanosecond().into(),
        });
        let (holder, name) = self.holder(Path::new(&self.name.clone()))?;
        let fd = new_file(&holder, &name, mode)?;
        self.file = Some(OpenFile { fd, time, size: Size::Open, offset: 0 });
        self.top = Some(FileType::RegularFile);
        Ok(())
    }

    pub(super) fn data(&mut self, data: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Err(io::Error::other("the archive has content without a file"));
        };
        if let Size::Left(left) = &mut file.size {
            *left = left.saturating_sub(data.len() as u64);
        }
        let mut rest = data;
        while !rest.is_empty() {
            let (run, hole) = next_run(rest, file.offset);
            rest = &rest[run + hole..];
            self.bytes += run as u64;
            if self.bytes > MAX_BYTES {
                return Err(io::Error::other("the copy is larger than 1 TiB"));
            }
            write_all(&file.fd, &data[data.len() - rest.len() - run - hole..][..run])?;
            file.offset += (run + hole) as u64;
            if hole > 0 {
                seek(&file.fd, SeekFrom::Start(file.offset))?;
            }
        }
        Ok(())
    }

    /// Puts the finished tree in its place.
    pub(super) fn commit(mut self) -> io::Result<()> {
        self.place()?;
        self.remove().map_err(|left| annotate(&left, &io::Error::other("it can't be removed")))
    }

    /// Removes the temporary folder with all that is in it. The error is what could not be removed.
    pub(super) fn abort(mut self) -> Result<(), PathBuf> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), PathBuf> {
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        let path = self.parent_path.join(&temporary);
        // The usual way is the faster one; it fails on what the other was made for.
        std::fs::remove_dir_all(&path)
            .or_else(|_| sandbar_archive::discard(self.parent.as_fd(), OsStr::new(&temporary)))
            .map_err(|_| path)
    }

    fn place(&mut self) -> io::Result<()> {
        self.close_file()?;
        let top = self.top.ok_or_else(|| io::Error::other("the sandbox sent nothing"))?;
        let mask = umask();
        // Outermost last, and the top after it was moved: a folder without rights can't be passed, and one that may not be written not moved.
        let mut held = None;
        for (path, mode, mtime) in self.folders.iter().rev() {
            let fd = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
            let mode = Mode::from_raw_mode(*mode & 0o777) & !mask;
            if path.as_os_str() == self.name {
                held = Some((fd, mode, *mtime));
                continue;
            }
            fchmod(&fd, mode)?;
            futimens(&fd, &times(*mtime))?;
        }
        let final_path = self.parent_path.join(&self.name);
        let rename = |flags| renameat_with(&self.folder, &self.name, &self.parent, &self.name, flags);
        let moved = match (self.existing, top) {
            // What was there takes the copy's place in the temporary folder, and goes with that.
            (Existing::Replace, _) => match rename(RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => rename(RenameFlags::EXCHANGE),
                moved => moved,
            },
            (Existing::Keep, FileType::Directory) => rename(RenameFlags::NOREPLACE),
            (Existing::Keep, _) => rename(RenameFlags::empty()),
        };
        moved.map_err(|error| match error {
            Errno::EXIST => annotate(&final_path, &io::Error::other("it exists, and folders are not merged")),
            error => annotate(&final_path, &error.into()),
        })?;
        if let Some((fd, mode, mtime)) = held {
            fchmod(&fd, mode)?;
            futimens(&fd, &times(mtime))?;
        }
        Ok(())
    }

    /// A member's path below the temporary folder, under the final name.
    fn inside(&self, path: &[u8]) -> io::Result<PathBuf> {
        let mut segments = path.split(|byte| *byte == b'/').filter(|segment| !matches!(*segment, b"" | b"."));
        if path.starts_with(b"/") || segments.next() != Some(&self.root) {
            return Err(hostile(path, "it is outside of what was asked for"));
        }
        let mut inside = PathBuf::from(&self.name);
        for segment in segments {
            if segment == b".." || segment.contains(&0) {
                return Err(hostile(path, "it leaves what was asked for"));
            }
            inside.push(OsStr::from_bytes(segment));
        }
        Ok(inside)
    }

    /// The folder that holds `path`, and the name in it.
    fn holder(&self, path: &Path) -> io::Result<(OwnedFd, OsString)> {
        let name = path.file_name().unwrap_or_default().to_owned();
        let holder = match path.parent() {
            Some(holder) if !holder.as_os_str().is_empty() => holder,
            _ => Path::new("."),
        };
        Ok((self.resolve(holder, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    /// Opens what is at `path` below the temporary folder, whatever links are on the way: none is followed.
    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat2(&self.folder, path, flags, Mode::empty(), inside)?)
    }

    fn make_folder(
        &mut self,
        holder: &OwnedFd,
        name: &OsStr,
        path: &Path,
        member: &Member,
    ) -> io::Result<FileType> {
        self.name_bytes += path.as_os_str().len();
        if self.name_bytes > MAX_NAMES {
            return Err(too_many_names());
        }
        // Its own rights are set at the end: until then others may not look and we have to get in.
        mkdirat(holder, name, Mode::RWXU)?;
        self.folders.push((path.to_owned(), member.mode, member.mtime));
        Ok(FileType::Directory)
    }

    fn make_file(
        &mut self,
        holder: &OwnedFd,
        name: &OsStr,
        size: u64,
        member: &Member,
    ) -> io::Result<FileType> {
        let fd = new_file(holder, name, member.mode)?;
        ftruncate(&fd, size)?;
        let time = Timespec { tv_sec: member.mtime, tv_nsec: 0 };
        self.file = Some(OpenFile { fd, time, size: Size::Left(size), offset: 0 });
        Ok(FileType::RegularFile)
    }

    fn make_link(&mut self, holder: &OwnedFd, name: &OsStr, target: &[u8]) -> io::Result<FileType> {
        let target = self.inside(target)?;
        let (target_holder, target_name) = self.holder(&target)?;
        let kind =
            FileType::from_raw_mode(statat(&target_holder, &target_name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        linkat(&target_holder, &target_name, holder, name, AtFlags::empty())?;
        Ok(kind)
    }

    fn close_file(&mut self) -> io::Result<()> {
        match self.file.take() {
            Some(OpenFile { size: Size::Left(1..), .. }) => Err(io::Error::other("a file is cut short")),
            Some(OpenFile { fd, time, size, offset }) => {
                if matches!(size, Size::Open) {
                    // It may end with a hole.
                    ftruncate(&fd, offset)?;
                }
                Ok(futimens(&fd, &Timestamps { last_access: time, last_modification: time })?)
            }
            None => Ok(()),
        }
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        // A copy that was given up half-way. There is nobody left to tell.
        let _ = self.remove();
    }
}

/// The folder that the copy goes to and its name there.
fn destination(
    target: &Path,
    placement: Placement,
    existing: Existing,
    root: &[u8],
) -> io::Result<(PathBuf, OsString)> {
    let root = || OsString::from_vec(root.to_vec());
    if placement == Placement::Into || (existing == Existing::Keep && target.is_dir()) {
        return Ok((target.to_owned(), root()));
    }
    let name = target.file_name().ok_or_else(|| annotate(target, &io::Error::other("it has no name")))?;
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_owned(), name.to_owned()))
}

fn new_file(holder: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(holder, name, flags, Mode::from_raw_mode(mode & 0o777))?)
}

/// How many bytes of `data`, which goes to `offset`, are to be written, and how many zero bytes after them can be left out. It goes by blocks of the
/// file, and by the part of one that is there.
fn next_run(data: &[u8], offset: u64) -> (usize, usize) {
    const ZEROS: [u8; HOLE] = [0; HOLE];
    let mut at = 0;
    let mut pass = |zero: bool| {
        let start = at;
        while at < data.len() {
            let into_block = usize::try_from((offset + at as u64) % HOLE as u64).unwrap_or(0);
            let part = &data[at..data.len().min(at + HOLE - into_block)];
            if (part == &ZEROS[..part.len()]) != zero {
                break;
            }
            at += part.len();
        }
        at - start
    };
    (pass(false), pass(true))
}

fn umask() -> Mode {
    // There is no way to look at it without setting it; nothing else is made in between.
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(mask);
    mask
}

fn times(mtime: i64) -> Timestamps {
    let time = Timespec { tv_sec: mtime, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn annotate(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

fn named(path: &[u8], error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("member `{}`: {error}", path.escape_ascii()))
}

fn hostile(path: &[u8], why: &str) -> io::Error {
    named(path, &io::Error::other(why.to_owned()))
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
