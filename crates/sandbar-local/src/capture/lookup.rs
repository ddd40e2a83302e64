//! Looking up a path in the layers of a sandbox from outside, as its kernel would: nobody inside is asked, and no link is followed but here.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, getxattr, openat, readlinkat, statat};
use rustix::io::Errno;
use sandbar_core::{ErrorKind, GuestPath, Result};
use sandbar_engine::rootfs::Skeleton;

use crate::error::{fail, found, io_error};
use crate::store::Layer;
use crate::template::Base;

const COMMIT: &str = "commit";
/// Links on the way to a file: the kernel follows as many (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;
/// Marks a folder below which nothing of the layers below shows.
const OPAQUE: &str = "user.overlay.opaque";

/// What becomes of a link that is the last of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// It is what is looked for.
    Itself,
    Followed,
}

/// The layers of a sandbox, the topmost first.
pub(super) struct Tree<'a> {
    root: Vec<BorrowedFd<'a>>,
    /// What lies over the host's programs, where they are below; the last is the host's own.
    usr: Vec<BorrowedFd<'a>>,
    host: Option<OwnedFd>,
    has_host: bool,
}

/// What stands under a name.
enum Entry {
    Folder,
    Link(Vec<u8>),
    Other,
}

/// What one layer says of a name.
enum Seen {
    Entry(Entry),
    /// It is not in this layer, and may be in one below.
    Further,
    /// It is in none.
    Nothing,
}

impl<'a> Tree<'a> {
    pub(super) fn new(
        upper: Option<&'a OwnedFd>,
        usr_upper: Option<&'a OwnedFd>,
        layers: &'a [Layer],
        skeleton: Option<&'a Skeleton>,
        empty: Option<&'a OwnedFd>,
        base: Option<&Base>,
    ) -> Result<Self> {
        let mut root: Vec<_> = upper.map(AsFd::as_fd).into_iter().collect();
        root.extend(layers.iter().map(|layer| layer.root.as_fd()));
        root.extend(skeleton.map(|skeleton| skeleton.root.as_fd()));
        root.extend(empty.map(AsFd::as_fd));
        let mut usr: Vec<_> = usr_upper.map(AsFd::as_fd).into_iter().collect();
        usr.extend(layers.iter().filter_map(|layer| layer.usr.as_ref()).map(AsFd::as_fd));
        usr.extend(skeleton.map(|skeleton| skeleton.usr.as_fd()));
        let host = base.map(|base| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(&base.roots.usr, flags, Mode::empty())
                .map_err(|cause| io_error(COMMIT, "the host's `/usr`", cause))
        });
        Ok(Self { root, usr, host: host.transpose()?, has_host: skeleton.is_some() })
    }

    /// Where a path leads to in the end, `last` says whether through a link that is the last itself; `None` means that there is positively nothing. What
    /// `is_elsewhere` is no further looked up.
    pub(super) fn resolve(
        &self,
        path: &GuestPath,
        last: Last,
        is_elsewhere: impl Fn(&GuestPath) -> bool,
    ) -> Result<Option<GuestPath>> {
        let mut left: VecDeque<Vec<u8>> = segments(path.as_bytes()).collect();
        let mut real: Vec<Vec<u8>> = Vec::new();
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            if name == b".." {
                real.pop();
                continue;
            }
            real.push(name);
            let so_far = joined(&real)?;
            if is_elsewhere(&so_far) {
                let rest: Vec<_> = left.into_iter().filter(|name| name != b"..").collect();
                return so_far.join(rest.join(&b'/')).map(Some);
            }
            match self.entry(&real)? {
                None => return Ok(None),
                Some(Entry::Link(target)) if last == Last::Followed || !left.is_empty() => {
                    links += 1;
                    if links > MAX_LINKS {
                        let why = format!("capture path `{path}` leads through too many links");
                        return Err(fail(ErrorKind::InvalidInput, COMMIT, why));
                    }
                    real.pop();
                    if target.starts_with(b"/") {
                        real.clear();
                    }
                    for name in segments(&target).collect::<Vec<_>>().into_iter().rev() {
                        left.push_front(name);
                    }
                }
                Some(Entry::Other) if !left.is_empty() => return Ok(None),
                Some(_) => {}
            }
        }
        joined(&real).map(Some)
    }

    /// What is at a path without links in it.
    fn entry(&self, path: &[Vec<u8>]) -> Result<Option<Entry>> {
        if self.has_host && path.first().is_some_and(|first| first == b"usr") {
            if path.len() == 1 {
                return Ok(Some(Entry::Folder));
            }
            let layers = self.usr.iter().copied().chain(self.host.as_ref().map(AsFd::as_fd));
            return through(layers, &path[1..]);
        }
        through(self.root.iter().copied(), path)
    }
}

fn joined(names: &[Vec<u8>]) -> Result<GuestPath> {
    GuestPath::new([b"/".as_slice(), &names.join(&b'/')].concat())
}

fn segments(path: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec)
}

fn through<'a>(layers: impl Iterator<Item = BorrowedFd<'a>>, path: &[Vec<u8>]) -> Result<Option<Entry>> {
    for layer in layers {
        let seen = look(layer, path);
        match seen.map_err(|cause| io_error(COMMIT, "a capture path can't be looked up", cause))? {
            Seen::Entry(entry) => return Ok(Some(entry)),
            Seen::Further => {}
            Seen::Nothing => return Ok(None),
        }
    }
    Ok(None)
}

fn look(layer: BorrowedFd<'_>, path: &[Vec<u8>]) -> rustix::io::Result<Seen> {
    let mut folder: Option<OwnedFd> = None;
    let mut below = Seen::Further;
    for (index, name) in path.iter().enumerate() {
        let at = folder.as_ref().map_or(layer, AsFd::as_fd);
        let Some(stat) = found(statat(at, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW))? else {
            return Ok(below);
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::CharacterDevice && stat.st_rdev == 0 {
            return Ok(Seen::Nothing);
        }
        if index + 1 == path.len() {
            return Ok(Seen::Entry(match kind {
                FileType::Directory => Entry::Folder,
                FileType::Symlink => Entry::Link(readlinkat(at, name.as_slice(), Vec::new())?.into_bytes()),
                _ => Entry::Other,
            }));
        }
        if kind != FileType::Directory {
            return Ok(Seen::Nothing);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = openat(at, name.as_slice(), flags, Mode::empty())?;
        if is_opaque(&next)? {
            below = Seen::Nothing;
        }
        folder = Some(next);
    }
    Ok(Seen::Entry(Entry::Folder))
}

fn is_opaque(folder: &OwnedFd) -> rustix::io::Result<bool> {
    let mut value = [0_u8; 8];
    // Attributes can't be read through such a descriptor itself.
    match getxattr(format!("/proc/self/fd/{}", folder.as_raw_fd()), OPAQUE, &mut value[..]) {
        Ok(length) => Ok(value[..length] == *b"y"),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT) => Ok(false),
        Err(cause) => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn open(path: &std::path::Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn paths_lead_where_the_kernel_would_go() {
        let scratch = tempfile::tempdir().unwrap();
        let (top, low) = (scratch.path().join("top"), scratch.path().join("low"));
        for folder in ["top/home", "top/hidden", "low/home/user", "low/hidden/old", "low/mnt/data"] {
            std::fs::create_dir_all(scratch.path().join(folder)).unwrap();
        }
        std::fs::write(low.join("home/user/file"), "").unwrap();
        symlink("../../mnt", low.join("home/user/link")).unwrap();
        symlink("/loop", low.join("loop")).unwrap();
        rustix::fs::setxattr(top.join("hidden"), OPAQUE, b"y", rustix::fs::XattrFlags::empty()).unwrap();
        let (top, low) = (open(&top), open(&low));
        let tree =
            Tree { root: vec![top.as_fd(), low.as_fd()], usr: Vec::new(), host: None, has_host: false };
        let resolved = |path: &str| {
            let real = tree
                .resolve(&GuestPath::new(path).unwrap(), Last::Itself, |real| real.as_bytes() == b"/mnt/else")
                .unwrap();
            real.map(|real| real.to_str().unwrap().to_owned())
        };
        assert_eq!(resolved("/home/user/file").as_deref(), Some("/home/user/file"));
        assert_eq!(resolved("/home/user/link/data").as_deref(), Some("/mnt/data"));
        assert_eq!(resolved("/home/user/link").as_deref(), Some("/home/user/link"));
        assert_eq!(resolved("/mnt/else/in/it").as_deref(), Some("/mnt/else/in/it"));
        assert_eq!(resolved("/").as_deref(), Some("/"));
        assert_eq!(resolved("/hidden").as_deref(), Some("/hidden"));
        for absent in ["/hidden/old", "/home/none", "/home/user/file/below"] {
            assert_eq!(resolved(absent), None, "{absent}");
        }
        assert!(tree.resolve(&GuestPath::new("/loop/x").unwrap(), Last::Itself, |_| false).is_err());
    }
}
