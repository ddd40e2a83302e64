use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

/// The number of a node in a provider's table.
pub(in crate::memory) type NodeId = u64;

/// A file, folder, link or device.
#[derive(Clone, Debug)]
pub(in crate::memory) struct Node {
    pub(in crate::memory) body: Body,
    pub(in crate::memory) mode: u32,
    pub(in crate::memory) owner: String,
    pub(in crate::memory) modified: Timestamp,
    /// The folder that holds it and its name there. Absent for the folders that sandboxes, templates and volumes start at.
    pub(super) up: Option<(NodeId, Vec<u8>)>,
}

/// What a node is.
#[derive(Clone, Debug)]
pub(in crate::memory) enum Body {
    File(Arc<Vec<u8>>),
    Dir(BTreeMap<Vec<u8>, NodeId>),
    Link(Vec<u8>),
    Device(Device),
}

/// The devices there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) enum Device {
    Null,
    Zero,
}

impl Node {
    pub(super) fn new(body: Body, mode: u32, owner: &str) -> Self {
        Self { body, mode, owner: owner.to_owned(), modified: Timestamp::now(), up: None }
    }

    pub(in crate::memory) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }

    /// What `stat` calls its size.
    pub(in crate::memory) fn size(&self) -> u64 {
        match &self.body {
            Body::File(bytes) => bytes.len() as u64,
            Body::Link(target) => target.len() as u64,
            Body::Dir(_) | Body::Device(_) => 0,
        }
    }
}
