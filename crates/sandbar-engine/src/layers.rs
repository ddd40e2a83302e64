//! The folders that the writable layers of a sandbox lie in: what they are, and how those of one that wrote nothing serve another.
//!
//! A file system may take longer to make and to remove a dozen folders than everything else at a sandbox' beginning and end takes. Those that a
//! sandbox leaves as they were made can be kept for another. What decides is the state on disk, read through descriptors after the last process of
//! the sandbox is gone: anything that is not exactly as made makes them unfit, and an unfit folder is removed.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, IFlags, Stat, Timespec, Timestamps, UTIME_NOW, Uid, fchown, flistxattr,
    fremovexattr, fstat, futimens, ioctl_getflags, statat, unlinkat,
};
use rustix::io::Errno;

use crate::ids::IdMode;
use crate::remove::open_folder;
use crate::spec::LAYERS_FOLDER;
use crate::sys::{InodeAttributes, inode_attributes};

/// Mode of the folder of all layers.
pub(crate) const LAYERS_MODE: u32 = 0o700;
/// What the kernel's overlay leaves on the folders it is given, of its own accord. What a program inside sets under such a name gets another one.
const OVERLAYS_MARKS: [&[u8]; 3] = [b"user.overlay.uuid", b"user.overlay.impure", b"user.overlay.opaque"];
/// What the kernel's overlay makes in a working folder, one in the other. The last is a file.
const OVERLAYS_WORK: [&CStr; 4] = [c"work", c"incompat", c"volatile", c"dirty"];
/// Names of attributes that are looked at, in bytes: the overlay's need less than a hundred.
const MARKS_BYTES: usize = 256;

/// Length of a folder that never had more than a few names in it, where file systems tell the room they take.
const MOST_BYTES: i64 = 4096;

/// The folder of one layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    pub(crate) mode: u32,
    is_work: bool,
    is_of_usr: bool,
}

const LAYERS: [Layer; 4] = [
    Layer { name: "upper", mode: 0o755, is_work: false, is_of_usr: false },
    Layer { name: "work", mode: 0o700, is_work: true, is_of_usr: false },
    Layer { name: "usr-upper", mode: 0o755, is_work: false, is_of_usr: true },
    Layer { name: "usr-work", mode: 0o700, is_work: true, is_of_usr: true },
];

/// The layers of a sandbox.
pub(crate) fn layers_of(ids: &IdMode) -> impl Iterator<Item = Layer> + use<> {
    let writes_usr = matches!(ids, IdMode::Range { .. });
    LAYERS.into_iter().filter(move |layer| writes_usr || !layer.is_of_usr)
}

/// Whether the layers in `folder` can serve another sandbox: each is there, empty, with the owner and mode it was made with, and has nothing
/// of its own (attributes, access lists, flags, a project, a length) that the next one would find. Every process of the sandbox has to be gone.
pub fn are_untouched(folder: BorrowedFd<'_>, ids: &IdMode) -> Result<bool, Errno> {
    let Some(owner) = owner_of(folder, ids)? else { return Ok(false) };
    let Some(layers) = Opened::at(folder, ids)? else { return Ok(false) };
    layers.are_plain(owner, &OVERLAYS_MARKS)
}

/// Makes layers that were [untouched](are_untouched), of a sandbox of the same kind of ids, those of a new one: without what the overlay left, with
/// the new owner, as new as they look. `false` means that they are not as they have to be; they are to be removed.
pub fn renew(folder: BorrowedFd<'_>, ids: &IdMode) -> Result<bool, Errno> {
    let Some(owner) = owner_of(folder, ids)? else { return Ok(false) };
    let Some(layers) = Opened::at(folder, ids)? else { return Ok(false) };
    let before = fstat(&layers.top)?;
    if !layers.are_plain((before.st_uid, before.st_gid), &OVERLAYS_MARKS)? {
        return Ok(false);
    }
    for (layer, dir) in &layers.each {
        if layer.is_work {
            clear_work(dir)?;
        }
        for mark in marks(dir)?.unwrap_or_default() {
            fremovexattr(dir, mark.as_c_str())?;
        }
    }
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    for dir in layers.each.iter().map(|(_, dir)| dir).chain([&layers.top]) {
        if (before.st_uid, before.st_gid) != owner {
            fchown(dir, Some(Uid::from_raw(owner.0)), Some(Gid::from_raw(owner.1)))?;
        }
        futimens(dir, &Timestamps { last_access: now, last_modification: now })?;
    }
    layers.are_plain(owner, &[])
}

/// User and group that the layers belong to; `None` for subordinate ids, where their makers are several.
fn owner_of(folder: BorrowedFd<'_>, ids: &IdMode) -> Result<Option<(u32, u32)>, Errno> {
    match ids {
        IdMode::Range { base, .. } => Ok(Some((*base, *base))),
        IdMode::Single => fstat(folder).map(|stat| Some((stat.st_uid, stat.st_gid))),
        IdMode::Subordinate(_) => Ok(None),
    }
}

/// All folders of layers, opened.
struct Opened {
    top: OwnedFd,
    each: Vec<(Layer, OwnedFd)>,
}

impl Opened {
    /// `None` where they are not exactly those that such a sandbox has.
    fn at(folder: BorrowedFd<'_>, ids: &IdMode) -> Result<Option<Self>, Errno> {
        let Some(top) = open(folder, LAYERS_FOLDER)? else { return Ok(None) };
        let wanted: BTreeSet<CString> =
            layers_of(ids).filter_map(|layer| CString::new(layer.name).ok()).collect();
        if names_in(&top, wanted.len())? != Some(wanted) {
            return Ok(None);
        }
        let mut each = Vec::with_capacity(LAYERS.len());
        for layer in layers_of(ids) {
            let Some(dir) = open(top.as_fd(), layer.name)? else { return Ok(None) };
            each.push((layer, dir));
        }
        Ok(Some(Self { top, each }))
    }

    fn are_plain(&self, owner: (u32, u32), marks: &[&[u8]]) -> Result<bool, Errno> {
        // Nobody inside ever had the folder above the layers before him.
        let reference = attributes(&self.top)?;
        if !is_plain(&self.top, LAYERS_MODE, owner, reference, &[])? {
            return Ok(false);
        }
        for (layer, dir) in &self.each {
            if !is_plain(dir, layer.mode, owner, reference, marks)? {
                return Ok(false);
            }
            let is_empty = if layer.is_work && !marks.is_empty() {
                has_only_work(dir)?
            } else {
                names_in(dir, 0)?.is_some()
            };
            if !is_empty {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Flags in the two forms that the kernel tells them in, neither of which has all, and the project; `None` where a file system has none.
type Attributes = (Option<IFlags>, Option<InodeAttributes>);

fn attributes(dir: &OwnedFd) -> Result<Attributes, Errno> {
    let flags = match ioctl_getflags(dir) {
        Ok(flags) => Some(flags),
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => None,
        Err(cause) => return Err(cause),
    };
    Ok((flags, inode_attributes(dir.as_fd())?))
}

/// Whether a folder has nothing of its own but what is in it.
fn is_plain(
    dir: &OwnedFd,
    mode: u32,
    owner: (u32, u32),
    reference: Attributes,
    allowed: &[&[u8]],
) -> Result<bool, Errno> {
    let stat: Stat = fstat(dir)?;
    // Some file systems never give back the room that the names in a folder took once.
    let is_short = stat.st_size <= MOST_BYTES;
    if stat.st_mode & 0o7777 != mode || (stat.st_uid, stat.st_gid) != owner || !is_short {
        return Ok(false);
    }
    if attributes(dir)? != reference {
        return Ok(false);
    }
    let Some(marks) = marks(dir)? else { return Ok(false) };
    Ok(marks.iter().all(|mark| allowed.contains(&mark.to_bytes())))
}

/// Names of extended attributes, access lists among them; `None` where there are more than the overlay's could be.
fn marks(dir: &OwnedFd) -> Result<Option<Vec<CString>>, Errno> {
    let mut buffer = [0_u8; MARKS_BYTES];
    let length = match flistxattr(dir, &mut buffer[..]) {
        Ok(length) => length,
        Err(Errno::RANGE) => return Ok(None),
        // A file system without any.
        Err(Errno::OPNOTSUPP) => 0,
        Err(cause) => return Err(cause),
    };
    let names = buffer[..length].split_inclusive(|byte| *byte == 0);
    Ok(names.map(|name| CString::from_vec_with_nul(name.to_vec()).ok()).collect())
}

/// Whether nothing is in a working folder but what a mounted overlay has there: nothing that was on its way into the upper layer.
fn has_only_work(dir: &OwnedFd) -> Result<bool, Errno> {
    let mut at = dir.try_clone().map_err(|cause| Errno::from_io_error(&cause).unwrap_or(Errno::IO))?;
    for (depth, name) in OVERLAYS_WORK.into_iter().enumerate() {
        match names_in(&at, 1)? {
            Some(names) if names.is_empty() => return Ok(true),
            Some(names) if names.iter().all(|found| found.as_c_str() == name) => {}
            _ => return Ok(false),
        }
        if depth + 1 == OVERLAYS_WORK.len() {
            let stat = statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            return Ok(is_file && stat.st_size == 0 && stat.st_nlink == 1);
        }
        match open_folder(at.as_fd(), name) {
            Ok(next) => at = next,
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            Err(cause) => return Err(cause),
        }
    }
    Ok(true)
}

/// Removes what a mounted overlay has in a working folder.
fn clear_work(dir: &OwnedFd) -> Result<(), Errno> {
    fn clear(at: BorrowedFd<'_>, names: &[&CStr]) -> Result<(), Errno> {
        let Some((name, below)) = names.split_first() else { return Ok(()) };
        if below.is_empty() {
            return gone(unlinkat(at, *name, AtFlags::empty()));
        }
        match open_folder(at, name) {
            Ok(next) => clear(next.as_fd(), below)?,
            Err(Errno::NOENT) => return Ok(()),
            Err(cause) => return Err(cause),
        }
        gone(unlinkat(at, *name, AtFlags::REMOVEDIR))
    }
    clear(dir.as_fd(), &OVERLAYS_WORK)
}

fn gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// A folder without following links or looking at what is mounted; `None` where there is no folder.
fn open(parent: BorrowedFd<'_>, name: &str) -> Result<Option<OwnedFd>, Errno> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(parent, name, flags, Mode::empty(), resolve) {
        Ok(dir) => Ok(Some(dir)),
        // One that its owner may not read any more was changed, too.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// The names in a folder; `None` where there are more than `most`.
fn names_in(dir: &OwnedFd, most: usize) -> Result<Option<BTreeSet<CString>>, Errno> {
    let mut names = BTreeSet::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if names.len() == most {
            return Ok(None);
        }
        names.insert(name.to_owned());
    }
    Ok(Some(names))
}
