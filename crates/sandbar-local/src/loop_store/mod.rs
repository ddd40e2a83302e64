//! A data folder on a btrfs of its own, for root, where the disk has another file system: a file in the folder, mounted over it (decision 0014).
//!
//! The file is seen in the folder as long as it is not mounted, and only then. So whoever opens the folder knows by one look what it is, and mounts it.

mod again;
mod init;
mod program;

pub(crate) use again::mount_if_needed;
pub use init::InitializedStore;

/// The file that the file system is in, in the data folder.
pub(crate) const FILE: &str = "store.btrfs";
/// As [`FILE`], while it is made.
pub(crate) const NEW_FILE: &str = ".version-store.btrfs";
