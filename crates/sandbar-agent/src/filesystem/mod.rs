//! The file-system service: entries, changes, watches. Synchronous but for the watches; callers run it where it may
//! block.

mod change;
mod entry;
mod error;
mod folders;
mod inotify;
mod list;
mod remove;
mod watch;
mod watchers;

pub(crate) use change::{make_dir, make_parents, rename};
pub(crate) use entry::{metadata, stat};
pub(crate) use list::list;
pub(crate) use remove::remove;
pub(crate) use watchers::{Watchers, watch_stream};

/// What operations need to know of the agent.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Folder with `passwd` and `group`.
    pub(crate) etc: std::path::PathBuf,
    /// Whom new entries belong to; absent where that can't be chosen.
    pub(crate) owner: Option<(u32, u32)>,
}
