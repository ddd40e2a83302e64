//! One look at each condition.

mod groups;
mod ids;
mod limits;
mod place;
mod programs;
mod room;
mod tiers;
mod walls;

use std::path::PathBuf;

use sandbar_engine::Host;

pub(crate) use groups::fault_of as groups_fault;
pub(super) use room::{LEAST_BYTES, LEAST_INODES};

use super::report::Finding;
use super::wording::Facts;
use crate::env::Environment;

/// What every look may use.
pub(super) struct Look {
    pub(super) host: Host,
    pub(super) facts: Facts,
    pub(super) environment: Environment,
    /// The data folder, which may not be there.
    pub(super) home: PathBuf,
    /// The executable that was named, if one was.
    pub(super) helper: Option<PathBuf>,
}

/// In the order of the table.
pub(super) fn all(look: &Look) -> Vec<Finding> {
    vec![
        walls::kernel(look),
        walls::user_namespaces(look),
        walls::root_rights(look),
        walls::procfs(look),
        walls::overlay(look),
        walls::mapped_mounts(look),
        walls::seccomp(look),
        walls::landlock(look),
        ids::subordinate(look),
        groups::cgroups(look),
        limits::processes(look),
        limits::namespaces(look),
        limits::inotify(look),
        limits::open_files(look),
        limits::file_size(look),
        place::helper(look),
        place::data_folder(look),
        room::disk(look),
        room::inodes(look),
        place::clock(look),
        place::surroundings(look),
        tiers::packet_filter(look),
        tiers::runsc(look),
        tiers::kvm(look),
    ]
}
