//! Deleting trees that somebody hostile made.

mod mapped;
mod spread;
mod tree;
mod walk;

pub(crate) use walk::open_folder;

pub use tree::{RemoveError, remove_tree};
