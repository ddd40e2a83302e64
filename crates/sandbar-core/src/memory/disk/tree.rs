use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::walk::LastLink;
use super::{Body, Device, DiskError, Node, NodeId, Watcher};
use crate::FileChangeKind;

/// All nodes of a provider.
#[derive(Debug, Default)]
pub(in crate::memory) struct Disk {
    pub(super) nodes: HashMap<NodeId, Node>,
    pub(super) watchers: Vec<Watcher>,
    next: NodeId,
    /// Folders that volumes start at: copied and removed only by name.
    volumes: HashSet<NodeId>,
}

impl Disk {
    pub(in crate::memory) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[&id]
    }

    fn add(&mut self, node: Node) -> NodeId {
        self.next += 1;
        self.nodes.insert(self.next, node);
        self.next
    }

    /// An empty folder that nothing leads to yet.
    pub(in crate::memory) fn new_root(&mut self, owner: &str) -> NodeId {
        self.add(Node::new(Body::Dir(BTreeMap::new()), 0o755, owner))
    }

    /// An empty folder for a volume.
    pub(in crate::memory) fn new_volume(&mut self) -> NodeId {
        let root = self.new_root("user");
        self.volumes.insert(root);
        root
    }

    fn entries_mut(&mut self, folder: NodeId) -> Option<&mut BTreeMap<Vec<u8>, NodeId>> {
        match &mut self.nodes.get_mut(&folder)?.body {
            Body::Dir(entries) => Some(entries),
            _ => None,
        }
    }

    fn link_in(&mut self, folder: NodeId, name: &[u8], id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id)
            && !self.volumes.contains(&id)
        {
            node.up = Some((folder, name.to_vec()));
        }
        if let Some(entries) = self.entries_mut(folder) {
            entries.insert(name.to_vec(), id);
        }
    }

    /// Makes `path` and the folders above it; `false` if it was there.
    pub(in crate::memory) fn make_dirs(
        &mut self,
        root: NodeId,
        path: &[u8],
        owner: &str,
    ) -> Result<bool, DiskError> {
        let mut made = false;
        let mut so_far = Vec::new();
        for segment in path.split(|b| *b == b'/').filter(|s| !s.is_empty()) {
            so_far.push(b'/');
            so_far.extend_from_slice(segment);
            let place = self.walk(root, &so_far, LastLink::Follow)?;
            match place.node {
                Some(id) if self.node(id).is_dir() => {}
                Some(_) => return Err(DiskError::NotADir),
                None => {
                    self.put(place.parent, &place.name, Body::Dir(BTreeMap::new()), 0o755, owner);
                    made = true;
                }
            }
        }
        Ok(made)
    }

    /// Puts a new node into `folder`.
    fn put(&mut self, folder: NodeId, name: &[u8], body: Body, mode: u32, owner: &str) -> NodeId {
        let id = self.add(Node::new(body, mode, owner));
        self.link_in(folder, name, id);
        self.changed(folder, name, FileChangeKind::Create);
        id
    }

    /// Opens a file for writing, making it if it is missing.
    pub(in crate::memory) fn open_write(
        &mut self,
        root: NodeId,
        path: &[u8],
        owner: &str,
        truncate: bool,
    ) -> Result<NodeId, DiskError> {
        let place = self.walk(root, path, LastLink::Follow)?;
        let Some(id) = place.node else {
            let body = Body::File(Arc::default());
            return Ok(self.put(place.parent, &place.name, body, 0o644, owner));
        };
        match &mut self.nodes.get_mut(&id).ok_or(DiskError::Missing)?.body {
            Body::File(bytes) => {
                if truncate {
                    *bytes = Arc::default();
                }
                Ok(id)
            }
            Body::Device(_) => Ok(id),
            Body::Dir(_) | Body::Link(_) => Err(DiskError::IsADir),
        }
    }

    /// Appends to an open file.
    pub(in crate::memory) fn append(&mut self, id: NodeId, bytes: &[u8]) {
        if let Some(node) = self.nodes.get_mut(&id)
            && let Body::File(content) = &mut node.body
        {
            Arc::make_mut(content).extend_from_slice(bytes);
            node.modified = Timestamp::now();
            if let Some((folder, name)) = node.up.clone() {
                self.changed(folder, &name, FileChangeKind::Write);
            }
        }
    }

    /// Replaces a file's content in one step; the file is `owner`'s.
    pub(in crate::memory) fn replace(
        &mut self,
        root: NodeId,
        path: &[u8],
        bytes: &[u8],
        owner: &str,
    ) -> Result<NodeId, DiskError> {
        let id = self.open_write(root, path, owner, true)?;
        if let Some(node) = self.nodes.get_mut(&id) {
            owner.clone_into(&mut node.owner);
        }
        self.append(id, bytes);
        Ok(id)
    }

    pub(in crate::memory) fn make_link(
        &mut self,
        root: NodeId,
        path: &[u8],
        target: &[u8],
        owner: &str,
    ) -> Result<(), DiskError> {
        let place = self.walk(root, path, LastLink::Keep)?;
        if place.node.is_some() {
            return Err(DiskError::Exists);
        }
        self.put(place.parent, &place.name, Body::Link(target.to_vec()), 0o777, owner);
        Ok(())
    }

    pub(in crate::memory) fn make_device(&mut self, root: NodeId, path: &[u8], device: Device) {
        if let Ok(place) = self.walk(root, path, LastLink::Keep) {
            self.put(place.parent, &place.name, Body::Device(device), 0o666, "root");
        }
    }

    pub(in crate::memory) fn chmod(&mut self, root: NodeId, path: &[u8], mode: u32) -> Result<(), DiskError> {
        let place = self.walk(root, path, LastLink::Follow)?;
        let id = place.node.ok_or(DiskError::Missing)?;
        if let Some(node) = self.nodes.get_mut(&id) {
            node.mode = mode;
        }
        self.changed(place.parent, &place.name, FileChangeKind::Chmod);
        Ok(())
    }

    /// Lets `path` lead to a volume's folder. What was there is hidden.
    pub(in crate::memory) fn mount(
        &mut self,
        root: NodeId,
        path: &[u8],
        volume: NodeId,
    ) -> Result<(), DiskError> {
        self.make_dirs(root, path, "user")?;
        let place = self.walk(root, path, LastLink::Follow)?;
        if let Some(hidden) = place.node {
            self.drop_tree(hidden);
        }
        self.link_in(place.parent, &place.name, volume);
        Ok(())
    }

    pub(in crate::memory) fn rename(
        &mut self,
        root: NodeId,
        from: &[u8],
        to: &[u8],
    ) -> Result<(), DiskError> {
        let source = self.find_link(root, from)?;
        let id = source.node.ok_or(DiskError::Missing)?;
        let target = self.walk(root, to, LastLink::Keep)?;
        if self.holds_volume(id) {
            return Err(DiskError::Busy);
        }
        if target.node == Some(id) {
            return Ok(());
        }
        if self.is_below(target.parent, id) {
            return Err(DiskError::IntoItself);
        }
        if let Some(old) = target.node {
            match (&self.node(old).body, self.node(id).is_dir()) {
                (Body::Dir(entries), true) if !entries.is_empty() => return Err(DiskError::NotEmpty),
                (Body::Dir(_), false) => return Err(DiskError::IsADir),
                (Body::Dir(_), true) | (_, false) => {}
                (_, true) => return Err(DiskError::NotADir),
            }
            self.drop_tree(old);
        }
        if let Some(entries) = self.entries_mut(source.parent) {
            entries.remove(&source.name);
        }
        self.link_in(target.parent, &target.name, id);
        self.renamed(id, (source.parent, &source.name), (target.parent, &target.name));
        Ok(())
    }

    /// Removes what is at `path` with all that is in it.
    pub(in crate::memory) fn remove(&mut self, root: NodeId, path: &[u8]) -> Result<(), DiskError> {
        let place = self.find_link(root, path)?;
        let id = place.node.ok_or(DiskError::Missing)?;
        if id == root || self.holds_volume(id) {
            return Err(DiskError::Busy);
        }
        if let Some(entries) = self.entries_mut(place.parent) {
            entries.remove(&place.name);
        }
        self.drop_tree(id);
        self.changed(place.parent, &place.name, FileChangeKind::Remove);
        Ok(())
    }

    /// Frees a node and what is in it, volumes excepted.
    pub(in crate::memory) fn drop_tree(&mut self, id: NodeId) {
        let mut doomed = vec![id];
        while let Some(id) = doomed.pop() {
            if self.volumes.contains(&id) {
                continue;
            }
            if let Some(Node { body: Body::Dir(entries), .. }) = self.nodes.remove(&id) {
                doomed.extend(entries.into_values());
            }
        }
        self.forget_watchers();
    }

    /// Frees a volume.
    pub(in crate::memory) fn drop_volume(&mut self, id: NodeId) {
        self.volumes.remove(&id);
        self.drop_tree(id);
    }

    /// A copy of a tree; where a volume was mounted is an empty folder.
    pub(in crate::memory) fn copy_tree(&mut self, id: NodeId) -> NodeId {
        let mut node = self.node(id).clone();
        node.up = None;
        let Body::Dir(entries) = std::mem::replace(&mut node.body, Body::Dir(BTreeMap::new())) else {
            let node = self.node(id).clone();
            return self.add(node);
        };
        let copy = self.add(node);
        for (name, entry) in entries {
            let twin =
                if self.volumes.contains(&entry) { self.new_root("user") } else { self.copy_tree(entry) };
            self.link_in(copy, &name, twin);
        }
        copy
    }

    /// Bytes of file content below a node.
    pub(in crate::memory) fn bytes_below(&self, id: NodeId) -> u64 {
        match self.nodes.get(&id) {
            None => 0,
            Some(Node { body: Body::Dir(entries), .. }) => entries
                .values()
                .filter(|entry| !self.volumes.contains(entry))
                .map(|entry| self.bytes_below(*entry))
                .sum(),
            Some(node) => node.size(),
        }
    }

    /// Whether a node is a volume or holds one.
    pub(in crate::memory) fn holds_volume(&self, id: NodeId) -> bool {
        self.volumes.contains(&id)
            || matches!(&self.node(id).body, Body::Dir(entries) if entries.values().any(|e| self.holds_volume(*e)))
    }

    fn is_below(&self, id: NodeId, top: NodeId) -> bool {
        let mut here = Some(id);
        while let Some(id) = here {
            if id == top {
                return true;
            }
            here = self.nodes.get(&id).and_then(|node| node.up.as_ref()).map(|(parent, _)| *parent);
        }
        false
    }
}
