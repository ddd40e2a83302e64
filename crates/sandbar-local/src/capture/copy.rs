use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};
use sandbar_core::{ErrorKind, GuestPath, Result, SandboxId};
use sandbar_engine::{Host, LAYERS_FOLDER};
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;

use super::still::Still;
use super::{paths, scrub};
use crate::client::Link;
use crate::error::{fail, found, gone, io_error, unknown};
use crate::home::{Folder, Home, StoredRecord};
use crate::provider::Inner;
use crate::store::{Boot, Layer, LayerId, ROOT, Staged, StoreIds, USR};
use crate::worker::{Cancel, Job, Task, Worker};

/// Most layers of a template: an overlay takes 32, and above a template's lie the moments of a sandbox and what is below all of them.
pub(crate) const MAX_TEMPLATE_LAYERS: usize = 20;
/// How many are left where there would be more; the others become one.
const KEPT_LAYERS: usize = 10;
/// A part of a layer, and where a sandbox has what it wrote there.
const PARTS: [(&str, &str); 2] = [(ROOT, "upper"), (USR, "usr-upper")];

/// A layer of what a sandbox has on disk, whole and without a name yet.
pub(crate) struct Captured<'a> {
    pub(crate) staged: Staged<'a>,
    pub(crate) id: LayerId,
    /// Bytes of its files.
    pub(crate) size: u64,
    /// What a sandbox of it boots from: that layer, and those of the captured one that are not in it.
    pub(crate) boot: Boot,
}

/// Makes a layer of what the sandbox `id` has, and gives it to `finish`, in a thread that may wait. The sandbox is held for the copy, and for no longer. Its files
/// have to include `paths`. Within a `scope` its name is another than outside: who has none of it can't tell by the time or the disk space that a layer takes
/// whether somebody else has the same files. Dropped, it leaves nothing.
pub(crate) async fn capture<T: Send + 'static>(
    inner: &Arc<Inner>,
    id: &SandboxId,
    paths: Vec<GuestPath>,
    scope: Option<String>,
    operation: &'static str,
    finish: impl FnOnce(&Home, Captured<'_>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let executable = inner.executable()?;
    let link = Link::new(Arc::clone(inner), id.clone());
    let mut still = Still::hold(&link, operation).await?;
    let cancel = OnDrop(Cancel::new()?);
    let (copied, mut is_copied) = oneshot::channel();
    let (go_on, may_go_on) = oneshot::channel();
    let work = Work {
        home: inner.home.clone(),
        executable,
        sandbox: id.clone(),
        paths,
        scope,
        cancel: cancel.0.clone(),
        operation,
    };
    let thread = tokio::task::spawn_blocking(move || work.run(copied, may_go_on, finish));
    // Without a word it failed, which the thread tells.
    let mut moved = None;
    let is_done = tokio::select! {
        biased;
        told = &mut is_copied => told.is_ok(),
        // The shim let it go: there is nothing to copy any more.
        () = still.renew() => {
            cancel.0.cancel();
            true
        }
    };
    if is_done {
        match still.let_go(&link, operation).await {
            Ok(()) => drop(go_on.send(())),
            Err(error) => {
                moved = Some(error);
                drop(go_on);
            }
        }
    }
    // Nothing is left of it when this answers, whatever it answers.
    let done = thread
        .await
        .map_err(|cause| fail(ErrorKind::Unexpected, operation, format!("it was broken off: {cause}")))?;
    if let Some(error) = moved {
        return Err(error);
    }
    done
}

/// Ends the work of a caller that went away.
struct OnDrop(Cancel);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

struct Work {
    home: PathBuf,
    executable: PathBuf,
    sandbox: SandboxId,
    paths: Vec<GuestPath>,
    scope: Option<String>,
    cancel: Cancel,
    operation: &'static str,
}

impl Work {
    fn run<T>(
        self,
        copied: oneshot::Sender<()>,
        may_go_on: oneshot::Receiver<()>,
        finish: impl FnOnce(&Home, Captured<'_>) -> Result<T>,
    ) -> Result<T> {
        let absent = || gone(self.operation, self.sandbox.as_str());
        let home = Home::open(&self.home)?.ok_or_else(absent)?;
        let blind = |cause: &dyn std::fmt::Display| unknown(self.operation, self.sandbox.as_str(), cause);
        let folder = Folder::open(&home, &self.sandbox).map_err(|cause| blind(&cause))?.ok_or_else(absent)?;
        let record = folder.record().map_err(|cause| blind(&cause))?.ok_or_else(absent)?;
        let boot = record.private.boot.clone().unwrap_or_else(Boot::host);
        let below = opened(&home, &boot, self.operation)?;
        paths::check(&home, &folder, &record, &below, &self.paths)?;
        let worker = Worker::new(&self.executable, StoreIds::of(&Host::observe()));
        let staged = Staged::new(&home, worker.ids().clone())?;
        let among = folded(&boot.layers);
        self.copy(&worker, &staged, &folder, &record, &below[..among])?;
        let _ = copied.send(());
        if may_go_on.blocking_recv().is_err() {
            let why = "the sandbox was not held still to the end, or nobody waits for it any more";
            return Err(fail(ErrorKind::Unavailable, self.operation, why));
        }
        scrub::scrub(&staged, &folder, self.operation)?;
        let (id, size) = self.measure(&worker, &staged)?;
        let mut boot = boot;
        // No overlay has a layer twice, and what lies above covers all of the same content below.
        let below = boot.layers.split_off(among).into_iter().filter(|layer| *layer != id);
        boot.layers = std::iter::once(id.clone()).chain(below).collect();
        finish(&home, Captured { staged, id, size, boot })
    }

    /// Copies what the sandbox wrote, and the layers right below that are to be part of it.
    fn copy(
        &self,
        worker: &Worker,
        staged: &Staged<'_>,
        folder: &Folder,
        record: &StoredRecord,
        layers: &[Layer],
    ) -> Result<()> {
        let own = StoreIds::of_sandbox(&record.private.ids);
        for (part, upper) in PARTS {
            let mut views = Vec::new();
            for layer in layers.iter().rev() {
                let of = if part == ROOT { Some(&layer.root) } else { layer.usr.as_ref() };
                if let Some(of) = of {
                    views.push(worker.view(of.as_fd(), &layer.document.ids)?);
                }
            }
            if let Some(upper) = upper_of(folder, upper, self.operation)? {
                views.push(worker.view(upper.as_fd(), &own)?);
            }
            if views.is_empty() && part == USR {
                continue;
            }
            let to = staged.make_part(part)?;
            worker.own(to.as_fd())?;
            if views.is_empty() {
                continue;
            }
            let mut descriptors: Vec<_> = views.iter().map(OwnedFd::as_fd).collect();
            descriptors.push(to.as_fd());
            let job = Job::Merge { layers: views.len(), keep_whiteouts: true };
            let task = Task { job, descriptors, progress: &mut |_| {}, cancel: Some(&self.cancel) };
            worker.run(task, self.operation)?;
        }
        Ok(())
    }

    /// Its name and the bytes of its files.
    fn measure(&self, worker: &Worker, staged: &Staged<'_>) -> Result<(LayerId, u64)> {
        let mut whole = Sha256::new();
        if let Some(scope) = &self.scope {
            whole.update(format!("scope {} {scope}\n", scope.len()));
        }
        let mut size = 0;
        for (part, _) in PARTS {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = found(openat(staged.dir(), part, flags, Mode::empty()))
                .map_err(|cause| io_error(self.operation, "what was copied", cause))?;
            let Some(opened) = opened else { continue };
            let task = Task {
                job: Job::Measure { digest: true },
                descriptors: vec![opened.as_fd()],
                progress: &mut |_| {},
                cancel: Some(&self.cancel),
            };
            let report = worker.run(task, self.operation)?;
            let digest = report.digest.ok_or_else(|| {
                fail(ErrorKind::Protocol, self.operation, "the worker tells no digest of what was copied")
            })?;
            whole.update(format!("{part} {digest}\n"));
            size += report.bytes;
        }
        Ok((LayerId::of_content(&hex(whole))?, size))
    }
}

/// In hexadecimal digits.
pub(crate) fn hex(digest: Sha256) -> String {
    use std::fmt::Write as _;
    digest.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The layers that a sandbox lies over, the topmost first.
fn opened(home: &Home, boot: &Boot, operation: &'static str) -> Result<Vec<Layer>> {
    let open = |id: &LayerId| {
        Layer::open(home, id)?
            .ok_or_else(|| fail(ErrorKind::Unexpected, operation, format!("layer `{id}` is gone")))
    };
    boot.layers.iter().map(open).collect()
}

/// How many of the topmost layers become part of the new one: moments of a sandbox, of which a template has none, and what would be too many.
fn folded(layers: &[LayerId]) -> usize {
    let moments = layers.iter().rposition(LayerId::is_snapshot).map_or(0, |last| last + 1);
    if layers.len() - moments + 1 > MAX_TEMPLATE_LAYERS {
        moments.max(layers.len() + 1 - KEPT_LAYERS)
    } else {
        moments
    }
}

/// What a sandbox wrote; `None` where it can't write there.
pub(super) fn upper_of(folder: &Folder, name: &str, operation: &'static str) -> Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    found(openat(folder, format!("{LAYERS_FOLDER}/{name}"), flags, Mode::empty()))
        .map_err(|cause| io_error(operation, &format!("what sandbox `{}` wrote", folder.id()), cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_what_is_too_much_become_part_of_the_new_layer() {
        let content = |number: usize| LayerId::of_content(&format!("{number:064x}")).unwrap();
        let contents = |count: usize| (0..count).map(content).collect::<Vec<_>>();
        assert_eq!(folded(&[]), 0);
        assert_eq!(folded(&contents(3)), 0);
        let mut mixed = vec![LayerId::random().unwrap(), LayerId::random().unwrap()];
        mixed.extend(contents(3));
        assert_eq!(folded(&mixed), 2);
        assert_eq!(folded(&contents(MAX_TEMPLATE_LAYERS - 1)), 0);
        let many = contents(MAX_TEMPLATE_LAYERS);
        assert_eq!(many.len() - folded(&many) + 1, KEPT_LAYERS);
    }
}
