//! Mounts the child makes. Allocation-free, see [`super::child`].

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change,
    move_mount, open_tree, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};

use super::trees::TreeSource;
use crate::plan::{Bind, Presence, STAGE_LAYERS, Source, Target};
use crate::sys::{ATTR_NODEV, ATTR_NOEXEC, ATTR_NOSUID, ATTR_RDONLY, mount_setattr};

/// Nothing that is mounted from now on reaches the host, and nothing of the host's reaches in.
pub(super) fn private() -> Result<(), Errno> {
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

/// A root of our own to work in, so that every path in the steps is short, known, and free of links somebody else made.
pub(super) fn enter_stage() -> Result<(), Errno> {
    let stage = new_file_system(c"tmpfs", &[(c"mode", Some(c"755"))], ATTR_NOSUID | ATTR_NODEV)?;
    move_mount(&stage, c"", CWD, c"/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    fchdir(&stage)?;
    let mode = Mode::from_raw_mode(0o755);
    for name in [c"old", c"new", c"m"] {
        mkdirat(CWD, name, mode)?;
    }
    const { assert!(matches!(STAGE_LAYERS.as_bytes(), b"/l")) };
    mkdirat(CWD, c"l", mode)?;
    pivot_root(c".", c"old")?;
    chdir(c"/")
}

/// An empty folder, that nothing can be written to, becomes the root, and the host goes.
pub(crate) fn bare_root() -> Result<(), Errno> {
    private()?;
    let attrs = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC;
    let root = new_file_system(c"tmpfs", &[(c"mode", Some(c"555"))], attrs)?;
    move_mount(&root, c"", CWD, c"/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    fchdir(&root)?;
    pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    chdir(c"/")
}

/// The new root becomes the root; the stage and the host below it go.
pub(super) fn leave_host() -> Result<(), Errno> {
    chdir(c"/new")?;
    // With both names the same, the old root lies over the new one, and the working folder is the old one's.
    pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    chdir(c"/")
}

pub(super) fn mount(
    kind: &CStr,
    options: &[(&'static CStr, Option<CString>)],
    attrs: u64,
    target: &CStr,
) -> Result<(), Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        set_option(&context, key, value.as_deref())?;
    }
    attach(&finish(&context, attrs)?, target)
}

pub(super) fn bind(trees: &[TreeSource], bind: &Bind) -> Result<(), Errno> {
    if let (Presence::IfPresent, Target::Exact(path)) = (bind.presence, &bind.target) {
        // Looked at first: taking a mount that is then not attached is what costs, the kernel waits for its readers.
        match open_place(path) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            place => drop(place?),
        }
    }
    match bind_required(trees, bind) {
        Err(Errno::NOENT | Errno::NOTDIR) if bind.presence == Presence::IfPresent => Ok(()),
        done => done,
    }
}

pub(super) fn restrict(path: &CStr, attrs: u64) -> Result<(), Errno> {
    mount_setattr(CWD, path, attrs, None)
}

fn bind_required(trees: &[TreeSource], bind: &Bind) -> Result<(), Errno> {
    let opened;
    let mount = match &bind.source {
        Source::Tree(n) => match trees.get(*n).ok_or(Errno::INVAL)? {
            TreeSource::Detached(mount) => mount,
            TreeSource::Path { path, dev, ino } => {
                opened = clone_tree(path)?;
                // Somebody put another thing in its place since the caller looked.
                if identity(&opened)? != (*dev, *ino) {
                    return Err(Errno::STALE);
                }
                &opened
            }
        },
        Source::Path(path) => {
            opened = clone_tree(path)?;
            &opened
        }
    };
    if bind.attrs != 0 {
        mount_setattr(mount.as_fd(), c"", bind.attrs, None)?;
    }
    match &bind.target {
        Target::Exact(path) => attach(mount, path),
        Target::InRoot(prefixes) => attach_in_root(mount, prefixes),
    }
}

fn clone_tree(path: &CStr) -> Result<OwnedFd, Errno> {
    open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

/// No part of the target may be a link: what an earlier run of the sandbox left must not choose the place.
fn attach(mount: &OwnedFd, target: &CStr) -> Result<(), Errno> {
    let place = open_place(target)?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", &place, c"", both)
}

fn open_place(target: &CStr) -> Result<OwnedFd, Errno> {
    openat2(CWD, target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// What is missing of the path is made. The places that [`open_in`] refuses are `LOOP`, as are those that a link names and that are not there.
fn attach_in_root(mount: &OwnedFd, prefixes: &[CString]) -> Result<(), Errno> {
    let root = open_place(c"/new")?;
    let is_folder = FileType::from_raw_mode(fstat(mount)?.st_mode) == FileType::Directory;
    let mut place = None;
    for (n, prefix) in prefixes.iter().enumerate() {
        let is_last = n + 1 == prefixes.len();
        let found = match open_in(root.as_fd(), prefix) {
            Err(Errno::NOENT) => {
                let made = if is_last && !is_folder { make_file } else { make_folder };
                match made(root.as_fd(), place.as_ref(), prefix) {
                    // A link that leads nowhere; or another sandbox that has the same volume was faster.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(cause) => return Err(cause),
                }
                match open_in(root.as_fd(), prefix) {
                    Err(Errno::NOENT) => Err(Errno::LOOP),
                    found => found,
                }
            }
            found => found,
        };
        place = Some(found?);
    }
    let place = place.ok_or(Errno::INVAL)?;
    // Over the root it would cover everything, the agent too.
    if identity(&place)? == identity(&root)? {
        return Err(Errno::LOOP);
    }
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", &place, c"", both)
}

/// How often a path is looked up again: `openat2(2)` gives a `..` up where anything anywhere is renamed or mounted meanwhile, and says to try again.
const MOST_TRIES: u32 = 10_000;

/// Links of the root file system are the sandbox's own: they are followed in it, and never into another mount, as the agent, `/proc` and `/run` are.
/// In another mount (one asked for before, or `/usr`) only what the path itself says is found: what is in a volume, another sandbox wrote.
fn open_in(root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
    let open = |resolve| {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | resolve;
        let mut tries = 0;
        loop {
            tries += 1;
            match openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN) if tries < MOST_TRIES => {}
                found => return found,
            }
        }
    };
    match open(ResolveFlags::NO_XDEV) {
        Err(Errno::XDEV) => open(ResolveFlags::NO_SYMLINKS),
        found => found,
    }
}

/// Device and inode.
fn identity(of: &OwnedFd) -> Result<(u64, u64), Errno> {
    fstat(of).map(|data| (data.st_dev, data.st_ino))
}

fn make_folder(root: BorrowedFd<'_>, parent: Option<&OwnedFd>, path: &CStr) -> Result<(), Errno> {
    mkdirat(parent.map_or(root, AsFd::as_fd), last_name(path), Mode::from_raw_mode(0o755))
}

fn make_file(root: BorrowedFd<'_>, parent: Option<&OwnedFd>, path: &CStr) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    rustix::fs::openat(parent.map_or(root, AsFd::as_fd), last_name(path), flags, mode).map(drop)
}

fn last_name(path: &CStr) -> &CStr {
    let bytes = path.to_bytes_with_nul();
    let start = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    bytes.get(start..).and_then(|name| CStr::from_bytes_with_nul(name).ok()).unwrap_or(path)
}

fn new_file_system(kind: &CStr, options: &[(&CStr, Option<&CStr>)], attrs: u64) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        set_option(&context, key, *value)?;
    }
    finish(&context, attrs)
}

fn set_option(context: &OwnedFd, key: &CStr, value: Option<&CStr>) -> Result<(), Errno> {
    match value {
        Some(value) => fsconfig_set_string(context, key, value),
        None => fsconfig_set_flag(context, key),
    }
}

fn finish(context: &OwnedFd, attrs: u64) -> Result<OwnedFd, Errno> {
    fsconfig_create(context)?;
    let mut flags = MountAttrFlags::empty();
    for (bit, flag) in [
        (ATTR_RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (ATTR_NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (ATTR_NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (ATTR_NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
    ] {
        if attrs & bit != 0 {
            flags |= flag;
        }
    }
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}
