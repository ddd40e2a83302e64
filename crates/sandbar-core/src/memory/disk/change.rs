use super::{Disk, NodeId};
use crate::memory::queue::{Queue, queue};
use crate::{Error, ErrorKind, FileChange, FileChangeKind, GuestPath, WatchEvents, WatchOptions};

/// Changes kept for a watcher that does not read: inotify's own default queue length (`max_queued_events`).
const MAX_QUEUED: usize = 16_384;

/// Somebody who wants to hear of changes.
#[derive(Debug)]
pub(in crate::memory) struct Watcher {
    folder: NodeId,
    path: GuestPath,
    options: WatchOptions,
    queue: Queue<FileChange>,
}

/// Arms a watch on `folder`, whose name for the watcher is `path`.
pub(in crate::memory) fn watch(
    disk: &mut Disk,
    folder: NodeId,
    path: GuestPath,
    options: WatchOptions,
) -> WatchEvents {
    let (queue, changes) = queue(MAX_QUEUED, || {
        Error::new(
            ErrorKind::LimitExceeded,
            "watch",
            format!("more than {MAX_QUEUED} changes were waiting to be read; some are lost"),
        )
    });
    disk.watchers.push(Watcher { folder, path, options, queue });
    changes
}

impl Disk {
    /// Tells the watchers that `kind` happened to `name` in `folder`.
    pub(super) fn changed(&mut self, folder: NodeId, name: &[u8], kind: FileChangeKind) {
        self.tell((folder, name), kind, None);
    }

    /// Tells the watchers that `node`, which was `from`, is now `to`. For those who watch it that is the end: its name is another.
    pub(super) fn renamed(&mut self, node: NodeId, from: (NodeId, &[u8]), to: (NodeId, &[u8])) {
        self.watchers.retain(|watcher| watcher.folder != node);
        self.tell(from, FileChangeKind::Rename, Some(to));
        self.tell(to, FileChangeKind::Create, None);
    }

    fn tell(&mut self, at: (NodeId, &[u8]), kind: FileChangeKind, to: Option<(NodeId, &[u8])>) {
        let mut watchers = std::mem::take(&mut self.watchers);
        watchers.retain(|watcher| {
            let seen = |(folder, name)| self.seen_from(watcher, folder, name);
            let Some(path) = seen(at) else { return !watcher.queue.is_closed() };
            watcher.queue.try_put(FileChange { kind, path, to: to.and_then(seen) })
        });
        self.watchers = watchers;
    }

    /// Ends the watches on folders that are gone.
    pub(super) fn forget_watchers(&mut self) {
        let nodes = &self.nodes;
        self.watchers.retain(|watcher| nodes.contains_key(&watcher.folder));
    }

    /// The path of `name` in `folder` as `watcher` knows it, if it is concerned.
    fn seen_from(&self, watcher: &Watcher, folder: NodeId, name: &[u8]) -> Option<GuestPath> {
        let mut names = vec![name.to_vec()];
        let mut here = folder;
        while here != watcher.folder {
            if watcher.options == WatchOptions::Folder {
                return None;
            }
            let (parent, name) = self.nodes.get(&here)?.up.clone()?;
            names.push(name);
            here = parent;
        }
        names.reverse();
        watcher.path.join(names.join(&b'/')).ok()
    }
}
