//! What the data folder takes on disk, and what of it nobody needs any more.

mod measure;
mod prune;
mod usage;

pub use prune::{Prunable, PruneKind, PruneMode, PruneOptions, PruneReport};
pub use usage::{DiskShare, DiskUsage};
