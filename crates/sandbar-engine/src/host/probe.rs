use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::mount::{OpenTreeFlags, open_tree};

use super::observe::Host;
use crate::error::Error;
use crate::ids::Extent;
use crate::launch::user_namespace;
use crate::sys::{ATTR_IDMAP, mount_setattr};

/// Each probe makes a process or two.
const PROBE_BOUND: Duration = Duration::from_secs(10);

/// Makes a user namespace for real, with one id; for `doctor`.
pub fn probe_user_namespace(host: &Host) -> Result<(), Error> {
    let end = Instant::now() + PROBE_BOUND;
    let own = |outside| [Extent { inside: 0, outside, count: 1 }];
    user_namespace(&own(host.euid), &own(host.egid), end).map(drop)
}

/// Whether ids can be mapped on mounts of the file system that `dir` is on. Needs host root.
pub fn probe_idmapped_mounts(dir: BorrowedFd<'_>) -> Result<(), Error> {
    let fail = |cause| Error::io("map the ids of a mount", "probe", cause);
    let end = Instant::now() + PROBE_BOUND;
    let range = [Extent { inside: 0, outside: 1 << 20, count: 1 }];
    let namespace = user_namespace(&range, &range, end)?;
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let mount = open_tree(dir, c"", flags).map_err(fail)?;
    mount_setattr(mount.as_fd(), c"", ATTR_IDMAP, Some(namespace.as_fd())).map_err(fail)
}
