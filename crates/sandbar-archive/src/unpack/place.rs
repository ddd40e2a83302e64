use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags, chownat,
    fchmod, fchown, fsetxattr, fstat, ftruncate, futimens, linkat, mkdirat, mknodat, openat, openat2,
    readlinkat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::read::{Kind, Member};
use crate::rules::{MAX_FOLDER_NAMES, MAX_ID, Names, Owners, Privileges, Special, Whiteouts, Xattrs};
use crate::unpack::below;
use crate::unpack::folders::{Folders, Late};
use crate::unpack::name::{check_target, inside, split};
use crate::{ArchiveError, Rules};

/// How the names begin that mean something that is gone (OCI image specification, "Whiteouts").
const WHITEOUT: &[u8] = b".wh.";
/// The name that makes its folder hide what is below it.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// How the names begin that only a file system knew that is long gone.
const RESERVED: &[u8] = b".wh..wh.";
/// Rights of folders that the archive does not name.
const IMPLIED: Mode = Mode::from_raw_mode(0o755);
/// Says to an overlay that a folder hides what is below it.
pub(crate) const OPAQUE_ATTRIBUTE: &std::ffi::CStr = c"user.overlay.opaque";

/// Puts members beneath a folder.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    into: BorrowedFd<'a>,
    rules: &'a Rules,
    folders: Folders,
    /// The last folder that something was put in: most often the next member goes there as well.
    last: Option<(Vec<u8>, OwnedFd)>,
    /// Of a root file system, the folders that no member named so far, and whether what is below them is gone.
    implied: BTreeMap<Vec<u8>, bool>,
    implied_bytes: usize,
    pub(crate) dropped_xattrs: u64,
}

/// What became of a member.
#[derive(Debug)]
pub(crate) enum Put {
    Done,
    Skipped,
    /// It waits for content.
    File(File),
}

/// A file that is written.
#[derive(Debug)]
pub(crate) struct File {
    fd: OwnedFd,
    offset: u64,
    /// It ends with a hole as far as it was written.
    hole: bool,
}

impl File {
    pub(crate) fn write(&mut self, mut data: &[u8]) -> Result<(), ArchiveError> {
        static ZEROS: [u8; super::CHUNK] = [0; super::CHUNK];
        self.hole = ZEROS.get(..data.len()) == Some(data);
        if self.hole {
            self.offset += data.len() as u64;
            return Ok(());
        }
        while !data.is_empty() {
            match rustix::io::pwrite(&self.fd, data, self.offset) {
                Ok(written) => {
                    data = &data[written..];
                    self.offset += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(ArchiveError::io("write it", error)),
            }
        }
        Ok(())
    }
}

impl<'a> Place<'a> {
    pub(crate) fn new(into: BorrowedFd<'a>, rules: &'a Rules) -> Self {
        let implied = BTreeMap::new();
        let folders = Folders::default();
        Self { into, rules, folders, last: None, implied, implied_bytes: 0, dropped_xattrs: 0 }
    }

    /// Everything is checked before anything of the member is made.
    pub(crate) fn put(&mut self, member: &Member) -> Result<Put, ArchiveError> {
        let path = inside(&member.path, self.rules)?;
        if self.rules.owners == Owners::FromArchive && member.uid.max(member.gid) > MAX_ID {
            let text =
                format!("its owner is {}:{}; ids above {MAX_ID} are not taken", member.uid, member.gid);
            return Err(ArchiveError::refused(text));
        }
        if path.is_empty() {
            return self.destination(member);
        }
        let (_, name) = split(&path);
        if self.rules.whiteouts == Whiteouts::Oci && name.starts_with(WHITEOUT) {
            return self.whiteout(&path);
        }
        match &member.kind {
            Kind::File(_) => {
                let fd = self.file(&path)?;
                Ok(Put::File(File { fd, offset: 0, hole: false }))
            }
            Kind::Folder => self.folder(&path, member),
            Kind::Symlink(target) => {
                check_target(&path, target, self.rules)?;
                self.symlink(&path, target, member)
            }
            Kind::HardLink(target) => self.hard_link(&path, target),
            Kind::Device => special(self.rules.devices, "it is a device"),
            Kind::Fifo => special(self.rules.fifos, "it is a named pipe"),
        }
    }

    /// What a file gets when its content is there.
    pub(crate) fn close(&mut self, file: &File, member: &Member) -> Result<(), ArchiveError> {
        if file.hole {
            ftruncate(&file.fd, file.offset).map_err(|error| ArchiveError::io("write it", error))?;
        }
        self.xattrs(file.fd.as_fd(), member)?;
        if let Some((uid, gid)) = self.owner(member) {
            fchown(&file.fd, Some(uid), Some(gid))
                .map_err(|error| ArchiveError::io("set its owner", error))?;
        }
        // Never more than this: of a file, all privilege bits go.
        fchmod(&file.fd, Mode::from_raw_mode(member.mode & 0o777))
            .and_then(|()| futimens(&file.fd, &times(member.mtime)))
            .map_err(|error| ArchiveError::io("set its rights and time", error))
    }

    /// What folders get at the end.
    pub(crate) fn finish(&mut self, below: &[BorrowedFd<'_>]) -> Result<(), ArchiveError> {
        self.last = None;
        // Only now it is known which of them were named, and what marks hide.
        for (path, is_new) in std::mem::take(&mut self.implied) {
            let there = if is_new { None } else { below::look(below, self.into, &path)? };
            self.dress_implied(&path, there).map_err(|error| error.of(&path))?;
        }
        self.folders.each(|path, late| {
            let set = || {
                let fd = self.open(path, OFlags::RDONLY)?;
                fchmod(&fd, Mode::from_raw_mode(late.mode.into()))?;
                futimens(&fd, &times(late.mtime))
            };
            set().map_err(|error| ArchiveError::io("set its rights and time", error).of(path))
        })?;
        for (path, mode) in self.folders.narrow() {
            let set = || fchmod(self.open(path, OFlags::RDONLY)?, Mode::from_raw_mode(mode.into()));
            set().map_err(|error| ArchiveError::io("set its rights", error).of(path))?;
        }
        Ok(())
    }

    /// The archive names the destination itself. Its rights are the caller's business but for a root file system.
    fn destination(&mut self, member: &Member) -> Result<Put, ArchiveError> {
        if member.kind != Kind::Folder {
            return Err(ArchiveError::refused("its name is the destination's own, and it is no folder"));
        }
        if self.rules.names == Names::Rootfs {
            let fd = self.open(b"", OFlags::RDONLY).map_err(|error| ArchiveError::io("open it", error))?;
            self.dress_folder(&fd, b"", member)?;
        }
        Ok(Put::Done)
    }

    /// An implied folder hides the one below in rights, owner and time, so it has the same.
    fn dress_implied(&mut self, path: &[u8], below: Option<rustix::fs::Stat>) -> Result<(), ArchiveError> {
        let fail = |error| ArchiveError::io("set its owner", error);
        let fd = self.open(path, OFlags::RDONLY).map_err(fail)?;
        let status = match below {
            Some(below) if self.rules.owners == Owners::FromArchive => {
                let (uid, gid) = (Uid::from_raw(below.st_uid), Gid::from_raw(below.st_gid));
                fchown(&fd, Some(uid), Some(gid)).map_err(fail)?;
                below
            }
            Some(below) => below,
            None => fstat(&fd).map_err(fail)?,
        };
        let mode =
            below.map_or_else(|| below::usual(path), |below| Mode::from_raw_mode(below.st_mode)).bits()
                & 0o1777;
        let mtime = (status.st_mtime, u32::try_from(status.st_mtime_nsec).unwrap_or(0));
        self.folders.push(path, Late { mode: u16::try_from(mode).unwrap_or(0), mtime })
    }

    /// A folder is made that no member named.
    fn imply(&mut self, path: &[u8], is_new: bool) -> Result<(), ArchiveError> {
        if self.rules.names != Names::Rootfs {
            return Ok(());
        }
        self.implied_bytes += path.len() + size_of::<(Vec<u8>, bool)>();
        if self.implied_bytes > MAX_FOLDER_NAMES {
            let text = format!("the names of its folders take more than {MAX_FOLDER_NAMES} bytes");
            return Err(ArchiveError::limit(text));
        }
        self.implied.insert(path.to_vec(), is_new);
        Ok(())
    }

    fn file(&mut self, path: &[u8]) -> Result<OwnedFd, ArchiveError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.make(path, FileType::RegularFile, |holder, name| {
            openat(holder, name, flags, Mode::RUSR | Mode::WUSR)
        })
    }

    fn symlink(&mut self, path: &[u8], target: &[u8], member: &Member) -> Result<Put, ArchiveError> {
        self.make(path, FileType::Symlink, |holder, name| symlinkat(target, holder, name))?;
        let owner = self.owner(member);
        let (holder, name) = self.holder(path)?;
        if let Some((uid, gid)) = owner {
            chownat(holder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| ArchiveError::io("set its owner", error))?;
        }
        utimensat(holder, name, &times(member.mtime), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| ArchiveError::io("set its time", error))?;
        Ok(Put::Done)
    }

    fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<Put, ArchiveError> {
        let shown = crate::error::escaped(target);
        let to = inside(target, self.rules).map_err(|error| {
            ArchiveError::refused(format!("it is a hard link to `{shown}`: {}", error.reason()))
        })?;
        if to == path {
            return Err(ArchiveError::refused("it is a hard link to itself"));
        }
        let (folder, original) = split(&to);
        let missing = |error: Errno| match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => {
                let text = format!("it is a hard link to `{shown}`, which is not a member before it");
                ArchiveError::refused(text)
            }
            error => ArchiveError::io("look for its target", error),
        };
        let source = self.open(folder, OFlags::PATH).map_err(missing)?;
        let status = statat(&source, original, AtFlags::SYMLINK_NOFOLLOW).map_err(missing)?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => {}
            FileType::Symlink => {
                // From here the same words may lead somewhere else.
                let leads = readlinkat(&source, original, Vec::new()).map_err(missing)?;
                check_target(path, leads.to_bytes(), self.rules)?;
            }
            _ => {
                let text = format!("it is a hard link to `{shown}`, which is neither a file nor a link");
                return Err(ArchiveError::refused(text));
            }
        }
        self.make(path, FileType::from_raw_mode(status.st_mode), |holder, name| {
            linkat(&source, original, holder, name, AtFlags::empty())
        })?;
        Ok(Put::Done)
    }

    fn folder(&mut self, path: &[u8], member: &Member) -> Result<Put, ArchiveError> {
        let whiteouts = self.rules.whiteouts;
        let (holder, name) = self.holder(path)?;
        match mkdirat(holder, name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                existing_folder(holder, name, whiteouts)?;
            }
            Err(error) => return Err(ArchiveError::io("make the folder", error)),
        }
        let fd = openat(holder, name, FOLDER, Mode::empty())
            .map_err(|error| ArchiveError::io("open it", error))?;
        self.dress_folder(&fd, path, member)?;
        Ok(Put::Done)
    }

    fn dress_folder(&mut self, fd: &OwnedFd, path: &[u8], member: &Member) -> Result<(), ArchiveError> {
        self.implied.remove(path);
        self.xattrs(fd.as_fd(), member)?;
        if let Some((uid, gid)) = self.owner(member) {
            fchown(fd, Some(uid), Some(gid)).map_err(|error| ArchiveError::io("set its owner", error))?;
        }
        let kept = match self.rules.privileges {
            Privileges::Drop => 0o777,
            Privileges::KeepSticky => 0o1777,
        };
        let mode = u16::try_from(member.mode & kept).unwrap_or(0);
        self.folders.push(path, Late { mode, mtime: member.mtime })
    }

    /// Something of a layer below is gone.
    fn whiteout(&mut self, path: &[u8]) -> Result<Put, ArchiveError> {
        let (folder, name) = split(path);
        if name == OPAQUE {
            let folder = folder.to_vec();
            self.holder(path)?;
            let fd = self
                .open(&folder, OFlags::RDONLY)
                .map_err(|error| ArchiveError::io("open its folder", error))?;
            make_opaque(&fd)?;
            return Ok(Put::Done);
        }
        if name.starts_with(RESERVED) {
            return Ok(Put::Skipped);
        }
        let gone = &name[WHITEOUT.len()..];
        let whole = [folder, if folder.is_empty() { b"" } else { b"/" }, gone].concat();
        if matches!(gone, b"" | b"." | b"..") {
            return Err(ArchiveError::refused("it marks something as gone that can't be"));
        }
        let (holder, _) = self.holder(path)?;
        match mknodat(holder, gone, FileType::CharacterDevice, Mode::empty(), 0) {
            Ok(()) => Ok(Put::Done),
            Err(Errno::EXIST) => {
                let opened = openat(holder, gone, FOLDER, Mode::empty());
                if let Some(is_new) = self.implied.get_mut(&whole) {
                    *is_new = true;
                }
                // This layer has it anew: of a folder, only what is below is gone.
                match opened {
                    Ok(fd) => make_opaque(&fd)?,
                    Err(Errno::NOTDIR | Errno::LOOP) => {}
                    Err(error) => return Err(ArchiveError::io("open what it marks", error)),
                }
                Ok(Put::Done)
            }
            Err(error) => Err(ArchiveError::io("mark it as gone", error)),
        }
    }

    /// Makes something that is no folder. What is there already is replaced if it is of the same type, as the later member is the one that counts.
    fn make<T>(
        &mut self,
        path: &[u8],
        kind: FileType,
        make: impl Fn(&OwnedFd, &[u8]) -> rustix::io::Result<T>,
    ) -> Result<T, ArchiveError> {
        let rules = self.rules;
        let (holder, name) = self.holder(path)?;
        let mut outcome = make(holder, name);
        if matches!(outcome, Err(Errno::EXIST)) {
            let look = |error| ArchiveError::io("look at what came before it", error);
            let before = statat(holder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(look)?;
            let before = FileType::from_raw_mode(before.st_mode);
            if before == FileType::Directory || (before != kind && rules.names == Names::Strict) {
                return Err(ArchiveError::refused("it comes twice, and as something else than before"));
            }
            unlinkat(holder, name, AtFlags::empty())
                .map_err(|error| ArchiveError::io("replace what came before it", error))?;
            outcome = make(holder, name);
        }
        outcome.map_err(|error| ArchiveError::io("make it", error))
    }

    /// The folder that a member goes to, made if the archive did not name it, and the member's name there.
    fn holder<'p>(&mut self, path: &'p [u8]) -> Result<(&OwnedFd, &'p [u8]), ArchiveError> {
        let (folder, name) = split(path);
        if self.last.as_ref().is_none_or(|(last, _)| last != folder) {
            let opened = match self.open(folder, OFlags::PATH) {
                Err(Errno::NOENT) => self.make_folders(folder)?,
                Err(Errno::NOTDIR) if self.rules.whiteouts == Whiteouts::Oci => self.make_folders(folder)?,
                opened => opened.map_err(on_the_way)?,
            };
            self.last = Some((folder.to_vec(), opened));
        }
        match &self.last {
            Some((_, holder)) => Ok((holder, name)),
            None => Err(ArchiveError::malformed("it has no folder")),
        }
    }

    fn make_folders(&mut self, path: &[u8]) -> Result<OwnedFd, ArchiveError> {
        let mut folder = self.open(b"", OFlags::PATH).map_err(on_the_way)?;
        let mut length = 0;
        for name in path.split(|byte| *byte == b'/') {
            length += name.len();
            match mkdirat(&folder, name, IMPLIED) {
                Ok(()) => self.imply(&path[..length], false)?,
                Err(Errno::EXIST) => {
                    if existing_folder(&folder, name, self.rules.whiteouts)? {
                        self.imply(&path[..length], true)?;
                    }
                }
                Err(error) => return Err(ArchiveError::io("make its folder", error)),
            }
            length += 1;
            folder = openat(&folder, name, FOLDER, Mode::empty()).map_err(on_the_way)?;
        }
        Ok(folder)
    }

    /// A folder beneath the destination; no link is followed on the way.
    fn open(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat2(self.into, path, flags, Mode::empty(), beneath) {
            // An old kernel, or a filter that can't look at what it is asked for.
            Err(Errno::NOSYS) => open_by_steps(self.into, path, flags),
            opened => opened,
        }
    }

    fn owner(&self, member: &Member) -> Option<(Uid, Gid)> {
        let id = |id: u64| u32::try_from(id).ok();
        match self.rules.owners {
            Owners::Caller => None,
            Owners::FromArchive => Some((Uid::from_raw(id(member.uid)?), Gid::from_raw(id(member.gid)?))),
        }
    }

    fn xattrs(&mut self, fd: BorrowedFd<'_>, member: &Member) -> Result<(), ArchiveError> {
        for (name, value) in &member.xattrs {
            // The overlay takes some for its own words.
            let allowed = self.rules.xattrs == Xattrs::UserOnly
                && name.starts_with(b"user.")
                && !name.starts_with(b"user.overlay.");
            if !allowed {
                self.dropped_xattrs += 1;
                continue;
            }
            match fsetxattr(fd, &**name, value, XattrFlags::empty()) {
                Ok(()) => {}
                // Not every file system has them, and no one can rely on it.
                Err(Errno::OPNOTSUPP | Errno::PERM) => self.dropped_xattrs += 1,
                Err(error) => return Err(ArchiveError::io("set an extended attribute", error)),
            }
        }
        Ok(())
    }
}

pub(crate) const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Something is where a folder is to be: fine if it is one. `true` means that it was marked as gone, and is there anew.
fn existing_folder(holder: &OwnedFd, name: &[u8], whiteouts: Whiteouts) -> Result<bool, ArchiveError> {
    let look = |error| ArchiveError::io("look at what came before it", error);
    let status = statat(holder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(look)?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::Directory => Ok(false),
        FileType::CharacterDevice if whiteouts == Whiteouts::Oci => {
            let fail = |error| ArchiveError::io("replace what marks it as gone", error);
            unlinkat(holder, name, AtFlags::empty()).map_err(fail)?;
            mkdirat(holder, name, IMPLIED).map_err(fail)?;
            make_opaque(&openat(holder, name, FOLDER, Mode::empty()).map_err(fail)?)?;
            Ok(true)
        }
        _ => {
            Err(ArchiveError::refused("a folder of it came before as a file or link, which is not followed"))
        }
    }
}

/// Folder by folder, which gives the same: no name is `..`, and no link is followed.
fn open_by_steps(top: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let (above, last) = split(path);
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = openat(top, c".", step, Mode::empty())?;
    for name in above.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        folder = openat(&folder, name, step, Mode::empty())?;
    }
    openat(&folder, last, flags, Mode::empty())
}

fn make_opaque(folder: &OwnedFd) -> Result<(), ArchiveError> {
    fsetxattr(folder, OPAQUE_ATTRIBUTE, b"y", XattrFlags::empty())
        .map_err(|error| ArchiveError::io("make its folder opaque", error))
}

fn on_the_way(error: Errno) -> ArchiveError {
    match error {
        Errno::LOOP | Errno::NOTDIR => {
            ArchiveError::refused("a folder of it came before as a file or link, which is not followed")
        }
        error => ArchiveError::io("open its folder", error),
    }
}

fn special(rule: Special, what: &str) -> Result<Put, ArchiveError> {
    match rule {
        Special::Skip => Ok(Put::Skipped),
        Special::Refuse => {
            Err(ArchiveError::refused(format!("{what}: only files, folders and links are taken")))
        }
    }
}

fn times((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

#[cfg(test)]
mod tests;
