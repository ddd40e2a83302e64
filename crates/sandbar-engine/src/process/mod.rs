//! Starting processes inside a sandbox, for the guest agent.
//!
//! Every command gets a *stub*: a fork of the agent that never executes anything, is a child subreaper, starts the
//! real program, reports its end through a pipe, and lives as long as it has children. Whatever the program leaves
//! behind, double forks and new sessions included, stays below its stub, so that a [`Tree`] finds all of it.

mod child;
mod identity;
mod inherited;
mod oom;
mod pty;
mod signals;
mod spawn;
mod stub;
mod tree;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    pub(crate) use super::tree::parsed;
}

pub use child::{Child, Event, Failure, Stage, read_event};
pub use identity::{Capabilities, Identity};
pub use inherited::{take_descriptor, take_network};
pub use oom::OomScore;
pub use pty::{foreground_group, resize};
pub use signals::{
    SignalQueue, become_quiet_parent, hide_from_ptrace, outlive_file_size_limit, release_free_memory,
    share_one_heap,
};
pub use spawn::{Resource, Rlimit, Spawn, SpawnError, Stdin, Stdio};
pub use tree::{Reach, Tree, kill_orphans, signal_all, signal_below};
