use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, open, statat};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::Pid;

use super::maps::user_namespace;
use crate::error::Error;
use crate::ids::{Extent, IdMode, USER_ID};
use crate::plan::{Plan, TreeMap, TreeOrigin};
use crate::sys::{ATTR_IDMAP, mount_setattr};

/// Making a user namespace for a mount's ids takes well under a millisecond.
const NAMESPACE_BOUND: Duration = Duration::from_secs(10);

/// How the child reaches a folder or file of the host.
#[derive(Debug)]
pub(crate) enum TreeSource {
    /// A mount of its own already, attached nowhere.
    Detached(OwnedFd),
    /// By its path, where it has to be the very thing the caller meant: device and inode.
    Path { path: CString, dev: u64, ino: u64 },
}

/// All of them, and which have to have their ids mapped once the sandbox's user namespace is there.
#[derive(Debug)]
pub(super) struct Trees {
    pub(super) sources: Vec<TreeSource>,
    mapped: Vec<(usize, u64)>,
}

/// Host root makes detached mounts beforehand. An ordinary user has no right to, so there the child, which has it over
/// its own copy of the mounts, finds them by path.
pub(super) fn open_all(plan: &Plan<'_>, layers: BorrowedFd<'_>) -> Result<Trees, Error> {
    let IdMode::Range { base, count } = plan.ids else { return by_path(plan, layers) };
    let mut trees = Trees { sources: Vec::new(), mapped: Vec::new() };
    // Most layers have the same owners: one namespace each for those.
    let mut stored: Vec<(u32, OwnedFd)> = Vec::new();
    for (n, tree) in plan.trees.iter().enumerate() {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let opened = match &tree.origin {
            TreeOrigin::Fd(fd) => open_tree(fd, c"", flags | OpenTreeFlags::AT_EMPTY_PATH),
            TreeOrigin::Layers => open_tree(layers, c"", flags | OpenTreeFlags::AT_EMPTY_PATH),
            TreeOrigin::Path(path) => open_tree(CWD, path.as_path(), flags),
        };
        let fd = opened.map_err(|cause| Error::io("take a mount of", name(&tree.origin), cause))?;
        // Nothing else of ours stands so low that laying out the agent's descriptors could hit it.
        let fd =
            super::parent::park(fd.as_fd()).map_err(|cause| Error::io("keep", name(&tree.origin), cause))?;
        match tree.map {
            TreeMap::Plain => {}
            TreeMap::Sandbox => trees.mapped.push((n, tree.attrs)),
            TreeMap::From(first) => {
                let known = stored.iter().find(|(of, _)| *of == first).map(|(_, map)| map);
                let map = if let Some(map) = known {
                    map
                } else {
                    let all = [Extent { inside: first, outside: base, count }];
                    let end = Instant::now() + NAMESPACE_BOUND;
                    stored.push((first, user_namespace(&all, &all, end)?));
                    &stored[stored.len() - 1].1
                };
                map_mount(fd.as_fd(), tree.attrs, map.as_fd())?;
            }
            TreeMap::Owner => {
                let data = fstat(&fd).map_err(|cause| Error::io("look at", name(&tree.origin), cause))?;
                let user = |owner| [Extent { inside: owner, outside: base + USER_ID, count: 1 }];
                debug_assert!(count > USER_ID);
                let end = Instant::now() + NAMESPACE_BOUND;
                let map = user_namespace(&user(data.st_uid), &user(data.st_gid), end)?;
                map_mount(fd.as_fd(), tree.attrs, map.as_fd())?;
            }
        }
        trees.sources.push(TreeSource::Detached(fd));
    }
    Ok(trees)
}

impl Trees {
    /// Maps the ids of those mounts that are to be seen as the sandbox's own, by its user namespace.
    pub(super) fn map(&self, pid: Pid) -> Result<(), Error> {
        if self.mapped.is_empty() {
            return Ok(());
        }
        let path = format!("/proc/{}/ns/user", pid.as_raw_nonzero());
        let namespace = open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|cause| Error::io("open user namespace", path, cause))?;
        for (n, attrs) in &self.mapped {
            if let TreeSource::Detached(fd) = &self.sources[*n] {
                map_mount(fd.as_fd(), *attrs, namespace.as_fd())?;
            }
        }
        Ok(())
    }
}

fn map_mount(mount: BorrowedFd<'_>, attrs: u64, namespace: BorrowedFd<'_>) -> Result<(), Error> {
    mount_setattr(mount, c"", attrs | ATTR_IDMAP, Some(namespace)).map_err(|cause| {
        let path = path_of(mount).map_or_else(|_| String::new(), |path| path.display().to_string());
        Error::io("map the ids of a mount", path, cause)
    })
}

fn by_path(plan: &Plan<'_>, layers: BorrowedFd<'_>) -> Result<Trees, Error> {
    let mut sources = Vec::with_capacity(plan.trees.len());
    for tree in &plan.trees {
        let fail = |cause: Errno| Error::io("look at", name(&tree.origin), cause);
        let (path, data) = match &tree.origin {
            TreeOrigin::Fd(fd) => (path_of(*fd)?, fstat(fd).map_err(fail)?),
            TreeOrigin::Layers => (path_of(layers)?, fstat(layers).map_err(fail)?),
            TreeOrigin::Path(path) => {
                (path.clone(), statat(CWD, path.as_path(), AtFlags::empty()).map_err(fail)?)
            }
        };
        // The child sees the host below `/old` by then.
        let mut bytes = b"/old".to_vec();
        bytes.extend(path.as_os_str().as_bytes());
        let path = CString::new(bytes).map_err(|_| fail(Errno::INVAL))?;
        sources.push(TreeSource::Path { path, dev: data.st_dev, ino: data.st_ino });
    }
    Ok(Trees { sources, mapped: Vec::new() })
}

fn path_of(fd: BorrowedFd<'_>) -> Result<PathBuf, Error> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::read_link(&link).map_err(|cause| Error::io("find the path of a folder", link, cause))
}

fn name(origin: &TreeOrigin<'_>) -> String {
    match origin {
        TreeOrigin::Fd(fd) => path_of(*fd).map_or_else(|_| String::new(), |path| path.display().to_string()),
        TreeOrigin::Path(path) => path.display().to_string(),
        TreeOrigin::Layers => "writable layers".to_owned(),
    }
}
