use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use sandbar_core::{Error, ErrorKind, Result, TemplateId};
use sandbar_engine::Host;

use crate::config::BACKEND;
use crate::error::fail;
use crate::home::Home;
use crate::store::{Hold, Layer, Staged, StoreIds, StoreLock, TemplateDocument};
use crate::template;
use crate::worker::{Cancel, Job, PackIds, Report, Task, Worker};

const OPERATION: &str = "export template";

/// What was exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportReport {
    /// Members of the archive.
    pub entries: u64,
    /// Bytes of their content.
    pub bytes: u64,
}

/// Writes a template's root file system as a tar archive.
pub(super) fn export(
    home: &Home,
    executable: &Path,
    id: &TemplateId,
    archive: &OwnedFd,
    cancel: &Cancel,
) -> Result<ExportReport> {
    let absent = || Error::not_found(OPERATION, format!("template `{id}`")).with_backend(BACKEND);
    if id.as_str() == template::HOST {
        return Err(of_host(id));
    }
    let layers = {
        let _lock = StoreLock::take(home, Hold::Shared, OPERATION)?;
        let document = TemplateDocument::read(home, id)?.ok_or_else(absent)?;
        if document.on_host {
            return Err(of_host(id));
        }
        let mut layers = Vec::new();
        for layer in document.layers.iter().rev() {
            let opened = Layer::open(home, layer)?;
            layers.push(opened.ok_or_else(|| fail(ErrorKind::Unexpected, OPERATION, "a layer is gone"))?);
        }
        layers
    };
    let worker = Worker::new(executable, StoreIds::of(&Host::observe()));
    let views = layers
        .iter()
        .map(|layer| worker.view(layer.root.as_fd(), &layer.document.ids))
        .collect::<Result<Vec<_>>>()?;
    // What the layers mean together is put together aside: an archive knows no layers.
    let staged = Staged::new(home, worker.ids().clone())?;
    let root = staged.make_part("root")?;
    worker.own(root.as_fd())?;
    let work = |job, descriptors| {
        worker.run(Task { job, descriptors, progress: &mut |_| {}, cancel: Some(cancel) }, OPERATION)
    };
    let mut descriptors: Vec<_> = views.iter().map(|view| view.as_fd()).collect();
    descriptors.push(root.as_fd());
    work(Job::Merge { layers: views.len(), keep_whiteouts: false }, descriptors)?;
    // A layer loses its name before its files: as long as all have theirs, nothing was missing.
    for layer in &layers {
        if !home.has_layer(&layer.document.id)? {
            return Err(fail(
                ErrorKind::Conflict,
                OPERATION,
                format!("template `{id}` was removed meanwhile"),
            ));
        }
    }
    let Report { entries, bytes, .. } =
        work(Job::Pack { ids: PackIds::AsIs }, vec![root.as_fd(), archive.as_fd()])?;
    Ok(ExportReport { entries, bytes })
}

fn of_host(id: &TemplateId) -> Error {
    let why = "it lies over this machine's own programs, which belong to this machine";
    Error::unsupported(OPERATION, format!("exporting template `{id}`"), why).with_backend(BACKEND)
}
