use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use sandbar_core::{Result, Template, TemplateId};
use sandbar_engine::Host;

use super::export::{ExportReport, export};
use super::import::Import;
use super::registry::{self, PullOptions};
use super::source::{ImportOptions, TemplateSource};
use crate::aside::aside;
use crate::home::Home;
use crate::provider::LocalProvider;
use crate::store::{LayerDocument, LayerId, Staged, StoreIds};
use crate::worker::Cancel;

impl LocalProvider {
    /// Makes a template of what was made elsewhere. One of that id is replaced, at once and whole; sandboxes made from the one before go on as they are.
    ///
    /// What is not to be trusted in it meets a process with no rights but over the new files. Set-user-id and set-group-id bits, devices and privileged
    /// attributes are left out; digests of images are checked. If this future is dropped, it ends and leaves nothing.
    pub async fn import_template(
        &self,
        id: &TemplateId,
        source: TemplateSource,
        options: ImportOptions,
    ) -> Result<Template> {
        let id = id.clone();
        self.aside("import template", move |executable, home, cancel| {
            Import { home, executable, options: &options, cancel }.run(&id, source)
        })
        .await
    }

    /// Makes a template of an image in a registry, such as `registry.example.com/team/app:1`, as [`import_template`](Self::import_template) does of what was fetched. Layers that
    /// are there already are not fetched again. A registry on this machine's own loopback address is spoken to without TLS.
    pub async fn pull_template(
        &self,
        id: &TemplateId,
        reference: &str,
        pull: PullOptions,
        mut options: ImportOptions,
    ) -> Result<Template> {
        let home = Home::ensure(&self.templates.inner.home)?;
        let ids = StoreIds::of(&Host::observe());
        // Held by its lock as a layer in the making is, and swept as one after a crash.
        let staged = Staged::new(&home, ids.clone())?;
        let folder = staged.make_part("root")?;
        let has = |digits: &str| {
            let id = LayerId::of_content(digits);
            let document = id.ok().and_then(|id| LayerDocument::read(&home, &id).ok().flatten());
            document.is_some_and(|document| document.ids == ids)
        };
        // A client's future is large, and this one lies in many others.
        Box::pin(registry::fetch(reference, &pull, &folder, &has, options.progress.as_ref())).await?;
        let place = home.path().join(staged.place()).join("root");
        options.origin.get_or_insert_with(|| reference.to_owned());
        self.import_template(id, TemplateSource::Folder(place), options).await
    }

    /// Writes a template as a tar archive of its root file system, with the owners that its files have inside. One that lies over this machine's own programs is
    /// refused. Where it fails in the middle, the archive has no end marker.
    pub async fn export_template(&self, id: &TemplateId, archive: OwnedFd) -> Result<ExportReport> {
        let id = id.clone();
        self.aside("export template", move |executable, home, cancel| {
            export(home, executable, &id, &archive, cancel)
        })
        .await
    }

    /// Work of a worker, which ends when nobody waits for it any more.
    async fn aside<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Path, &Home, &Cancel) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let cancel = Cancel::new()?;
        let on_drop = CancelOnDrop(cancel.clone());
        let inner = Arc::clone(&self.templates.inner);
        let done = aside(operation, move || {
            let executable = inner.executable()?;
            work(&executable, &Home::ensure(&inner.home)?, &cancel)
        })
        .await;
        drop(on_drop);
        done
    }
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
