//! From a plan to a running agent.

mod ceiling;
mod child;
mod child_files;
mod child_mounts;
mod child_netlink;
mod child_network;
mod hint;
mod maps;
mod owner;
mod parent;
mod trees;

pub(crate) use child_mounts::bare_root;
pub(crate) use maps::{MapTools, user_namespace, write_maps};
pub(crate) use parent::try_out;
pub use parent::{Launched, launch};

/// Descriptors of ours are moved up here, so that laying out the agent's never overwrites one that is still needed.
const PARKING: i32 = 64;
