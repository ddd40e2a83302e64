//! Linux isolation for Sandbar: the tier `namespaces`.
//!
//! Synchronous on purpose. A launch is [`plan()`] (pure) and then [`launch()`]; what runs between its clone and the agent
//! allocates nothing, so a caller with several threads is safe too, but only one with a single thread makes it fast.

mod capabilities;
pub mod cgroup;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod handover;
pub mod host;
mod ids;
mod inherited;
mod launch;
pub mod layers;
mod limits;
mod memfd;
pub mod mount_source;
pub mod network;
mod obstacle;
mod plan;
pub mod proc_id;
pub mod process;
mod random;
mod remove;
pub mod rootfs;
mod seccomp;
mod spec;
mod stored;
pub mod subvolume;
mod sys;
pub mod usage;
pub mod worker;

pub use capabilities::{Capability, SANDBOX_ROOT as SANDBOX_ROOT_CAPABILITIES, mask as capability_mask};
pub use cgroup::Cgroup;
pub use error::Error;
pub use host::Host;
pub use ids::{ID_COUNT, IdMode, SubIds, USER_ID};
pub use inherited::close_inherited;
pub use launch::{Launched, launch};
pub use limits::{
    DEFAULT_INOTIFY_INSTANCES, DEFAULT_INOTIFY_WATCHES, DEFAULT_NOFILE, Enforced, Enforcement, Limits,
    MIN_CPUS_MILLI,
};
pub use memfd::sealed_memfd;
pub use obstacle::Obstacle;
pub use plan::{Plan, plan};
pub use remove::{RemoveError, remove_tree};
pub use spec::{
    Access, Durability, HostPrograms, LAYERS_FOLDER, Lower, MAX_LOWERS, Mount, MountOwners, Network, Owners,
    Root, Spec,
};
pub use stored::{StoredSize, give_to_user, stored_size};
