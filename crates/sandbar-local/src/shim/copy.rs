//! A layer by a snapshot or a copy of what was written, while nothing of the sandbox goes on.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};
use sandbar_core::{ErrorKind, Result};
use sandbar_engine::{IdMode, LAYERS_FOLDER};
use tokio::sync::oneshot;

use super::protocol::Snapped;
use super::shared::Shared;
use super::{log, sleep, subvolume};
use crate::error::{fail, found, io_error};
use crate::home::{Folder, Home, Pending, StoredRecord};
use crate::store::{Boot, Hold, LayerId, Merged, ROOT, STORE_BASE, Staged, StoreIds, StoreLock, USR};
use crate::worker::{Job, Task, Worker};

const FORK: &str = "fork";
/// The file system takes a snapshot of what was written.
const SUBVOLUME: &str = "subvolume";
/// What was written is copied.
const COPY: &str = "copy";
/// The file system shares the bytes of each file with its copy.
const REFLINK: &str = "reflink";
/// This executable, also where another has its place by now.
const OWN_FILE: &str = "/proc/self/exe";

/// Makes a layer of what was written: by a snapshot where that can be, by a copy elsewhere. One that sleeps sleeps on. The caller holds the turn. The store is held from when the layer is there.
pub(super) async fn snapshot(shared: &Arc<Shared>, merged: Option<&Merged>) -> Result<(Snapped, StoreLock)> {
    let sleeps = shared.look(|record| record.private.asleep.is_some());
    if !sleeps {
        let of = Arc::clone(shared);
        // What can't be written early is written when all stand still.
        let write = move || {
            let ids = of.look(|record| record.private.ids.clone());
            subvolume::write_early(&of.home, &of.folder, &ids)
        };
        let _ = tokio::task::spawn_blocking(write).await;
    }
    let still = if sleeps { None } else { Some(Still::of(shared).await?) };
    let of = Arc::clone(shared);
    let (done, is_done) = oneshot::channel::<()>();
    let copying = tokio::task::spawn_blocking(move || {
        let ids = of.look(|record| record.private.ids.clone());
        copy(&of.home, &of.folder, &ids, Path::new(OWN_FILE), move || drop(done))
    });
    // It goes on while the copy waits for the store, and after a copy that did not come off.
    let _ = is_done.await;
    if let Some(still) = still {
        still.over()?;
    }
    let copied = copying.await.unwrap_or_else(|cause| {
        Err(fail(ErrorKind::Unexpected, FORK, format!("the copy was lost: {cause}")))
    });
    let (copied, store) = copied?;
    let boot = shared.look(|record| record.private.boot.clone());
    Ok((copied.over(&shared.home, boot, merged)?, store))
}

/// The same of a sandbox that is stopped. Blocks; the caller holds its lock.
pub(crate) fn of_stopped(
    home: &Home,
    folder: &Folder,
    record: &StoredRecord,
    executable: &Path,
    merged: Option<&Merged>,
) -> Result<(Snapped, StoreLock)> {
    let (copied, store) = copy(home, folder, &record.private.ids, executable, || ())?;
    Ok((copied.over(home, record.private.boot.clone(), merged)?, store))
}

/// A sandbox all of whose processes stand still; the record says so, for whoever comes if this shim is gone.
pub(super) struct Still<'a> {
    shared: &'a Shared,
    is_over: bool,
}

impl<'a> Still<'a> {
    pub(super) async fn of(shared: &'a Shared) -> Result<Self> {
        let how = sleep::how(shared);
        shared
            .update(|record| record.private.pending = Some(Pending::Copying(how)))
            .map_err(|cause| io_error(FORK, "`record.json`", cause))?;
        let still = Self { shared, is_over: false };
        // After an error all run.
        sleep::stop(shared).await?;
        Ok(still)
    }

    pub(super) fn over(mut self) -> Result<()> {
        self.is_over = true;
        sleep::recover(self.shared)
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        if !self.is_over
            && let Err(error) = sleep::recover(self.shared)
        {
            log::say(&format_args!("after a fork that did not come off: {error}"));
        }
    }
}

struct Copied {
    layer: LayerId,
    mechanism: &'static str,
    /// Bytes that the file system does not share.
    bytes: u64,
}

impl Copied {
    /// What a copy boots from: this over what the sandbox itself does.
    fn over(self, home: &Home, boot: Option<Boot>, merged: Option<&Merged>) -> Result<Snapped> {
        let Self { layer, mechanism, bytes } = self;
        let mut layers = boot.unwrap_or_else(Boot::host).layers;
        if let Some(merged) = merged {
            merged.apply_if_there(home, &mut layers)?;
        }
        layers.insert(0, layer);
        Ok(Snapped { layers, mechanism: mechanism.to_owned(), copied_bytes: bytes })
    }
}

/// Makes a layer of the writable layers of a sandbox, in which nothing goes on. Something may go on from `is_copied` on. A copy may take long, so the store
/// is taken only after it.
fn copy(
    home: &Home,
    folder: &Folder,
    ids: &IdMode,
    executable: &Path,
    is_copied: impl FnOnce(),
) -> Result<(Copied, StoreLock)> {
    let theirs = StoreIds::of_sandbox(ids);
    if let Some(staged) = subvolume::snapshot(home, folder, &theirs)? {
        is_copied();
        return finish(home, staged, SUBVOLUME, 0, None);
    }
    let ours = match &theirs {
        StoreIds::Range { .. } => StoreIds::Range { first: STORE_BASE },
        others => others.clone(),
    };
    let worker = Worker::new(executable, ours.clone());
    let staged = Staged::new(home, ours)?;
    let (mut bytes, mut shared) = (0, 0);
    for (written, part) in [("upper", ROOT), ("usr-upper", USR)] {
        let Some(source) = open(folder, written)? else { continue };
        let source = worker.view(source.as_fd(), &theirs)?;
        let target = staged.make_part(part)?;
        worker.own(target.as_fd())?;
        let task = Task {
            job: Job::Merge { layers: 1, keep_whiteouts: true },
            descriptors: vec![source.as_fd(), target.as_fd()],
            progress: &mut |_| (),
            cancel: None,
        };
        let report = worker.run(task, FORK)?;
        bytes += report.bytes;
        shared += report.shared;
    }
    is_copied();
    let mechanism = if bytes > 0 && shared == bytes { REFLINK } else { COPY };
    finish(home, staged, mechanism, bytes - shared.min(bytes), Some(bytes))
}

/// Gives the layer its name, with the store held from before.
fn finish(
    home: &Home,
    staged: Staged<'_>,
    mechanism: &'static str,
    bytes: u64,
    size: Option<u64>,
) -> Result<(Copied, StoreLock)> {
    let store = StoreLock::take(home, Hold::Shared, FORK)?;
    let layer = LayerId::random()?;
    staged.finish(&layer, size)?;
    Ok((Copied { layer, mechanism, bytes }, store))
}

fn open(folder: &Folder, name: &str) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    found(openat(folder, format!("{LAYERS_FOLDER}/{name}"), flags, Mode::empty()))
        .map_err(|cause| io_error(FORK, &format!("`{LAYERS_FOLDER}/{name}`"), cause))
}
