use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::error::Error;
use crate::ids::{Extent, ID_COUNT};
use crate::launch::user_namespace;
use crate::sys::{ATTR_IDMAP, ATTR_NODEV, ATTR_NOEXEC, ATTR_NOSUID, ATTR_RDONLY, mount_setattr};

/// Making a user namespace for a mount's ids takes well under a millisecond.
const NAMESPACE_BOUND: Duration = Duration::from_secs(10);

/// A read-only mount of the tree at `dir`, attached nowhere, in which the 65,536 ids from `from` on are those from `to` on: for a process with mapped ids that is
/// to read what another range of ids owns. Needs host root.
pub fn mapped_tree(dir: BorrowedFd<'_>, from: u32, to: u32) -> Result<OwnedFd, Error> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let mount =
        open_tree(dir, c"", flags).map_err(|cause: Errno| Error::io("take a mount of", "a folder", cause))?;
    let attrs = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC;
    let fail = |cause: Errno| Error::io("map the ids of", "a mount", cause);
    if from == to {
        mount_setattr(mount.as_fd(), c"", attrs, None).map_err(fail)?;
        return Ok(mount);
    }
    let all = [Extent { inside: from, outside: to, count: ID_COUNT }];
    let map = user_namespace(&all, &all, Instant::now() + NAMESPACE_BOUND)?;
    mount_setattr(mount.as_fd(), c"", attrs | ATTR_IDMAP, Some(map.as_fd())).map_err(fail)?;
    Ok(mount)
}
