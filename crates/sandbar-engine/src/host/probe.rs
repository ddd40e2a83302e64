//! Trying for real what a launch does. Each of these starts a process or two, waits at most ten seconds, and leaves nothing.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::mount::{OpenTreeFlags, open_tree};

use super::observe::Host;
use crate::error::Error;
use crate::ids::{Extent, IdMode};
use crate::launch::{try_out, user_namespace};
use crate::plan::{Trial, trial};
use crate::random;
use crate::remove::remove_tree;
use crate::sys::{ATTR_IDMAP, mount_setattr};

/// Each probe makes a process or two.
const PROBE_BOUND: Duration = Duration::from_secs(10);
/// Host ids that no sandbox gets and that distributions give nobody: those of the probes as root.
const PROBE_IDS: u32 = 0x6fff_0000;

/// Makes all namespaces of a sandbox, with its ids, and a root of its own in them.
pub fn probe_namespaces(host: &Host, ids: Option<&IdMode>) -> Result<(), Error> {
    attempt(host, ids, &Trial::Namespaces)
}

/// Mounts a fresh `/proc` there.
pub fn probe_procfs(host: &Host) -> Result<(), Error> {
    attempt(host, None, &Trial::Procfs)
}

/// Installs the system call filter of a sandbox.
pub fn probe_system_call_filter(host: &Host) -> Result<(), Error> {
    attempt(host, None, &Trial::Filter)
}

/// Confines a process with Landlock, as a sandbox with one id is.
pub fn probe_landlock(host: &Host) -> Result<(), Error> {
    attempt(host, None, &Trial::Landlock { abi: host.landlock_abi })
}

/// Redirects what leaves a network namespace with nftables, through netlink.
pub fn probe_packet_filter(host: &Host) -> Result<(), Error> {
    attempt(host, None, &Trial::PacketFilter)
}

/// Mounts an overlay of which all layers are in a new folder in `folder`, and writes to it. The folder is removed afterwards.
pub fn probe_overlay(host: &Host, folder: BorrowedFd<'_>) -> Result<(), Error> {
    let name = format!(".sandbar-probe-{}", random::uuid()?);
    let fail = |cause| Error::io("make folder", name.clone(), cause);
    mkdirat(folder, &name, Mode::RWXU).map_err(fail)?;
    let ids = ids_of(host);
    let tried = overlay_in(host, &ids, folder, &name);
    let removed = remove_tree(folder, std::ffi::OsStr::new(&name), &ids);
    tried?;
    removed.map(drop).map_err(|cause| Error::reason("remove", name.clone(), cause.to_string()))
}

fn overlay_in(host: &Host, ids: &IdMode, folder: BorrowedFd<'_>, name: &str) -> Result<(), Error> {
    let fail = |cause| Error::io("make folder", name.to_owned(), cause);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let writable = openat(folder, name, flags, Mode::empty()).map_err(fail)?;
    mkdirat(&writable, "lower", Mode::RWXU).map_err(fail)?;
    let path = |fd: &OwnedFd| {
        use std::os::fd::AsRawFd as _;
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        std::fs::read_link(&link).map_err(|cause| Error::io("find the path of a folder", link, cause))
    };
    let lower: PathBuf = path(&writable)?.join("lower");
    let plan = trial(&Trial::Overlay { lower }, ids, host, writable.as_fd())?;
    try_out(&plan, PROBE_BOUND)
}

fn attempt(host: &Host, ids: Option<&IdMode>, what: &Trial) -> Result<(), Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, c"/", flags, Mode::empty()).map_err(|cause| Error::io("open", "/", cause))?;
    let best = ids_of(host);
    let plan = trial(what, ids.unwrap_or(&best), host, root.as_fd())?;
    try_out(&plan, PROBE_BOUND)
}

/// As a sandbox would have them, but never those of one. An ordinary user's subordinate ids are a condition of their own.
fn ids_of(host: &Host) -> IdMode {
    if host.needs_range() { IdMode::range(PROBE_IDS) } else { IdMode::Single }
}

/// Whether ids can be mapped on mounts of the file system that `dir` is on. Needs host root.
pub fn probe_idmapped_mounts(dir: BorrowedFd<'_>) -> Result<(), Error> {
    let fail = |cause| Error::io("map the ids of a mount", "probe", cause);
    let end = Instant::now() + PROBE_BOUND;
    let range = [Extent { inside: 0, outside: PROBE_IDS, count: 1 }];
    let namespace = user_namespace(&range, &range, end)?;
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let mount = open_tree(dir, c"", flags).map_err(|cause| Error::io("take a mount of", "probe", cause))?;
    mount_setattr(mount.as_fd(), c"", ATTR_IDMAP, Some(namespace.as_fd())).map_err(fail)
}
