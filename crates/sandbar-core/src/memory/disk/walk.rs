use std::collections::VecDeque;

use super::{Body, Disk, NodeId};

/// Most links followed in one path, as in Linux (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// Where a path leads.
#[derive(Debug)]
pub(in crate::memory) struct Place {
    /// The folder that holds the last segment.
    pub(in crate::memory) parent: NodeId,
    /// The last segment.
    pub(in crate::memory) name: Vec<u8>,
    /// What is there.
    pub(in crate::memory) node: Option<NodeId>,
}

/// Why the disk refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) enum DiskError {
    Missing,
    NotADir,
    IsADir,
    Exists,
    TooManyLinks,
    Busy,
    NotEmpty,
    IntoItself,
}

impl DiskError {
    /// The words that C programs print.
    pub(in crate::memory) fn words(self) -> &'static str {
        match self {
            Self::Missing => "No such file or directory",
            Self::NotADir => "Not a directory",
            Self::IsADir => "Is a directory",
            Self::Exists => "File exists",
            Self::TooManyLinks => "Too many levels of symbolic links",
            Self::Busy => "Device or resource busy",
            Self::NotEmpty => "Directory not empty",
            Self::IntoItself => "Invalid argument",
        }
    }
}

/// What to do with a link in the last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastLink {
    Follow,
    Keep,
}

impl Disk {
    /// Follows `path` from `root`. A missing last segment is a place without a node; a missing one before it is an error.
    pub(super) fn walk(&self, root: NodeId, path: &[u8], last: LastLink) -> Result<Place, DiskError> {
        let mut folders = vec![(root, Vec::new())];
        let mut rest: VecDeque<Vec<u8>> = segments(path).collect();
        let mut links = 0;
        while let Some(segment) = rest.pop_front() {
            if segment == b".." {
                if folders.len() > 1 {
                    folders.pop();
                }
                continue;
            }
            let (here, _) = folders[folders.len() - 1];
            let Body::Dir(entries) = &self.nodes.get(&here).ok_or(DiskError::Missing)?.body else {
                return Err(DiskError::NotADir);
            };
            let Some(&found) = entries.get(&segment) else {
                if rest.is_empty() {
                    return Ok(Place { parent: here, name: segment, node: None });
                }
                return Err(DiskError::Missing);
            };
            match &self.node(found).body {
                Body::Link(target) if !rest.is_empty() || last == LastLink::Follow => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(DiskError::TooManyLinks);
                    }
                    if target.first() == Some(&b'/') {
                        folders.truncate(1);
                    }
                    for part in segments(target).collect::<Vec<_>>().into_iter().rev() {
                        rest.push_front(part);
                    }
                }
                Body::Dir(_) => folders.push((found, segment)),
                _ if rest.is_empty() => {
                    return Ok(Place { parent: here, name: segment, node: Some(found) });
                }
                _ => return Err(DiskError::NotADir),
            }
        }
        let (node, name) = folders.pop().unwrap_or((root, Vec::new()));
        let parent = folders.last().map_or(root, |(parent, _)| *parent);
        Ok(Place { parent, name, node: Some(node) })
    }

    /// What is at `path`, links followed.
    pub(in crate::memory) fn find(&self, root: NodeId, path: &[u8]) -> Result<NodeId, DiskError> {
        self.walk(root, path, LastLink::Follow)?.node.ok_or(DiskError::Missing)
    }

    /// What is at `path`, a link in the last segment not followed.
    pub(in crate::memory) fn find_link(&self, root: NodeId, path: &[u8]) -> Result<Place, DiskError> {
        let place = self.walk(root, path, LastLink::Keep)?;
        if place.node.is_some() { Ok(place) } else { Err(DiskError::Missing) }
    }

    /// The path of a node below `root`, without links; `None` where it is not below it.
    pub(in crate::memory) fn path_of(&self, root: NodeId, node: NodeId) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut here = node;
        while here != root {
            let (parent, name) = self.node(here).up.as_ref()?;
            names.push(name.as_slice());
            here = *parent;
        }
        names.reverse();
        Some([b"/".as_slice(), names.join(&b'/').as_slice()].concat())
    }
}

fn segments(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|b| *b == b'/').filter(|s| !s.is_empty() && *s != b".").map(<[u8]>::to_vec)
}
