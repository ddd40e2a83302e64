use rustix::fs::{StatVfs, statvfs};

use super::Look;
use crate::config::DEFAULT_DISK;
use crate::doctor::report::Finding;
use crate::doctor::table::place as table;
use crate::doctor::words::nearest;

/// The template's skeleton, a record and its logs, with room to spare.
pub(in crate::doctor) const LEAST_BYTES: u64 = 16 << 20;
/// Files of the same.
pub(in crate::doctor) const LEAST_INODES: u64 = 2_000;
/// A tree of dependencies has so many files.
const GOOD_INODES: u64 = 100_000;

pub(super) fn disk(look: &Look) -> Finding {
    let data = match room(look) {
        Ok(data) => data,
        Err(why) => return Finding::unknown(&table::DISK_ROOM, why),
    };
    let free = data.f_bavail.saturating_mul(data.f_frsize);
    let observed = format!("{} MiB free", free >> 20);
    if free < LEAST_BYTES {
        Finding::bad(&table::DISK_FULL, &look.facts, observed)
    } else if free < DEFAULT_DISK {
        Finding::bad(&table::DISK_LITTLE, &look.facts, observed)
    } else {
        Finding::ok(&table::DISK_ROOM, observed)
    }
}

pub(super) fn inodes(look: &Look) -> Finding {
    let data = match room(look) {
        Ok(data) => data,
        Err(why) => return Finding::unknown(&table::INODE_ROOM, why),
    };
    if data.f_files == 0 {
        return Finding::ok(&table::INODE_ROOM, "the file system makes them as they are needed");
    }
    let observed = format!("{} free", data.f_favail);
    if data.f_favail < LEAST_INODES {
        Finding::bad(&table::INODES_NONE, &look.facts, observed)
    } else if data.f_favail < GOOD_INODES {
        Finding::bad(&table::INODES_FEW, &look.facts, observed)
    } else {
        Finding::ok(&table::INODE_ROOM, observed)
    }
}

fn room(look: &Look) -> Result<StatVfs, String> {
    let existing =
        nearest(&look.home).ok_or_else(|| format!("no folder of `{}` is there", look.home.display()))?;
    statvfs(existing).map_err(|cause| format!("`{}`: {cause}", existing.display()))
}
