//! The emulated disk: one table of nodes for a whole provider.
//!
//! A sandbox, a template and a volume are each a folder node in it. Mounting a volume is an entry that leads to the volume's folder.

mod change;
mod node;
mod tree;
mod walk;

pub(super) use change::{Watcher, watch};
pub(super) use node::{Body, Device, Node, NodeId};
pub(super) use tree::Disk;
pub(super) use walk::DiskError;
