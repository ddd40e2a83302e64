//! From a source to a published template. All layers are made aside, without the store: it is taken only to give them their names.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, fstat, open, openat};
use rustix::io::Errno;
use sandbar_core::{ErrorKind, Result, Template, TemplateId, UserName};
use sandbar_engine::{Host, USER_ID};
use sha2::{Digest as _, Sha256};

use super::image::{self, Image, ImageConfig, ImageLayer};
use super::part::public;
use super::source::{FolderOwners, ImportOptions, ImportProgress, TemplateSource};
use crate::error::{fail, io_error};
use crate::home::Home;
use crate::store::{
    Boot, Hold, Layer, LayerDocument, LayerId, Staged, StoreIds, StoreLock, TemplateDefaults,
    TemplateDocument, sweep_layers,
};
use crate::template;
use crate::worker::{Cancel, Job, Report, Task, UnpackIds, Worker, hex};

const OPERATION: &str = "import template";
/// Most layers of a template: of the 32 that a root file system may have, this leaves some for what lies below it and for moments of its sandboxes.
const MAX_LAYERS: usize = 20;
/// Layers of a template that was replaced, which go at once.
const LAYERS_REMOVED: usize = 64;

/// An import.
pub(super) struct Import<'a> {
    pub(super) home: &'a Home,
    pub(super) executable: &'a Path,
    pub(super) options: &'a ImportOptions,
    pub(super) cancel: &'a Cancel,
}

/// A layer of the template to be.
enum Part<'a> {
    /// It is in the store.
    There(Layer),
    /// It is made and has no name yet.
    New { id: LayerId, staged: Staged<'a>, root: OwnedFd, bytes: u64 },
}

impl Part<'_> {
    fn id(&self) -> &LayerId {
        match self {
            Self::There(layer) => &layer.document.id,
            Self::New { id, .. } => id,
        }
    }

    fn bytes(&self) -> Option<u64> {
        match self {
            Self::There(layer) => layer.document.size_bytes,
            Self::New { bytes, .. } => Some(*bytes),
        }
    }
}

impl<'a> Import<'a> {
    /// Does it. A failure leaves nothing.
    pub(super) fn run(&self, id: &TemplateId, source: TemplateSource) -> Result<Template> {
        if id.as_str() == template::HOST {
            let why = format!("`{id}` is the built-in template");
            return Err(fail(ErrorKind::InvalidInput, OPERATION, why).with_hint("choose another id"));
        }
        let worker = Worker::new(self.executable, StoreIds::of(&Host::observe()));
        let (source_name, parts, config) = match source {
            TemplateSource::File(path) => {
                let file = open(&path, OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
                    .map_err(|cause| io_error(OPERATION, &format!("`{}`", path.display()), cause))?;
                let (parts, config) = self.archive(&worker, &file)?;
                (path.display().to_string(), parts, config)
            }
            TemplateSource::Stream(stream) => {
                let (parts, config) = self.archive(&worker, &stream)?;
                ("a stream".to_owned(), parts, config)
            }
            TemplateSource::Folder(path) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let folder = open(&path, flags, Mode::empty())
                    .map_err(|cause| io_error(OPERATION, &format!("`{}`", path.display()), cause))?;
                let (parts, config) = self.folder(&worker, folder.as_fd())?;
                (path.display().to_string(), parts, config)
            }
        };
        let (parts, defaults) = self.complete(&worker, parts, &config)?;
        self.publish(id, parts, defaults, source_name)
    }

    fn archive(&self, worker: &Worker, archive: &OwnedFd) -> Result<(Vec<Part<'a>>, ImageConfig)> {
        let (staged, root) = self.stage(worker)?;
        let job = Job::Unpack { whiteouts: false, ids: UnpackIds::AsIs, layers: 0 };
        let report = self.work(worker, "unpacking", job, &[archive.as_fd(), root.as_fd()])?;
        if report.entries == 0 {
            let why = "the archive has nothing in it: expected a root file system or an image";
            return Err(fail(ErrorKind::InvalidInput, OPERATION, why)
                .with_hint("look at what wrote it, as it may have failed"));
        }
        if self.options.owners.is_some() {
            return Err(meaningless(
                "whose the files become",
                "the source is an archive, which says it itself",
            ));
        }
        if let Some(image) = image::read(root.as_fd(), self.options.reference.as_deref())? {
            return self.image(worker, root.as_fd(), image);
        }
        self.no_image()?;
        let part = self.by_content(worker, staged, root, report.bytes)?;
        Ok((vec![part], ImageConfig::default()))
    }

    fn folder(&self, worker: &Worker, folder: BorrowedFd<'_>) -> Result<(Vec<Part<'a>>, ImageConfig)> {
        if let Some(image) = image::read(folder, self.options.reference.as_deref())? {
            if self.options.owners.is_some() {
                return Err(meaningless(
                    "whose the files become",
                    "the source is an image, which says it itself",
                ));
            }
            return self.image(worker, folder, image);
        }
        self.no_image()?;
        self.outside(folder)?;
        let (staged, root) = self.stage(worker)?;
        let owner = match self.options.owners.unwrap_or_default() {
            FolderOwners::Root => Some(0),
            FolderOwners::User => Some(USER_ID),
            FolderOwners::Keep => None,
        };
        let view = match worker.ids() {
            // The worker is nobody that the folder's owners know: it sees their numbers as they are.
            StoreIds::Range { .. } => worker.view(folder, &StoreIds::Range { first: 0 })?,
            own => worker.view(folder, own)?,
        };
        let report = self.work(worker, "copying", Job::Copy { owner }, &[view.as_fd(), root.as_fd()])?;
        let part = self.by_content(worker, staged, root, report.bytes)?;
        Ok((vec![part], ImageConfig::default()))
    }

    /// Refuses a folder that the data folder is in: a copy of it would hold itself.
    fn outside(&self, folder: BorrowedFd<'_>) -> Result<()> {
        let broken = |cause: Errno| io_error(OPERATION, "the folders above the data folder", cause);
        let number = |folder: BorrowedFd<'_>| fstat(folder).map(|stat| (stat.st_dev, stat.st_ino));
        let wanted = number(folder).map_err(broken)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Layers are made in a folder of their own.
        let mut at = openat(self.home, "layers", flags, Mode::empty()).map_err(broken)?;
        loop {
            let here = number(at.as_fd()).map_err(broken)?;
            if here == wanted {
                let home = self.home.path().display();
                let why =
                    format!("the folder holds the data folder `{home}` of sandbar, where the copy would go");
                return Err(fail(ErrorKind::InvalidInput, OPERATION, why)
                    .with_hint("choose a folder below it, or another data folder: `SANDBAR_HOME`"));
            }
            let above = openat(&at, "..", flags, Mode::empty()).map_err(broken)?;
            if number(above.as_fd()).map_err(broken)? == here {
                return Ok(());
            }
            at = above;
        }
    }

    /// The source is a root file system: nothing is accepted and then not done.
    fn no_image(&self) -> Result<()> {
        match self.options.reference {
            Some(_) => Err(meaningless("which image", "the source is a root file system, not an image")),
            None => Ok(()),
        }
    }

    fn image(
        &self,
        worker: &Worker,
        folder: BorrowedFd<'_>,
        image: Image,
    ) -> Result<(Vec<Part<'a>>, ImageConfig)> {
        let Image { layers, config } = image;
        let count = layers.len();
        // The lowest become one where there are more than a template may have.
        let low = if count > MAX_LAYERS { count - (MAX_LAYERS - 1) } else { 0 };
        let mut parts: Vec<Part<'a>> = Vec::with_capacity(MAX_LAYERS);
        if let Some(last) = low.checked_sub(1)
            && let Some(part) = self.there(worker, &merged_id(&layers[last].chain_id)?)?
        {
            parts.push(part);
        }
        let skipped = if parts.is_empty() { 0 } else { low };
        for (number, layer) in layers.iter().enumerate().skip(skipped) {
            let id = LayerId::of_content(&layer.chain_id)?;
            let step = format!("layer {} of {count}", number + 1);
            let part = match self.there(worker, &id)? {
                Some(part) => part,
                None => self.image_layer(worker, folder, id, layer, &step, &parts)?,
            };
            parts.push(part);
            // A worker takes so many at once.
            if number + 1 == low || (number + 1 < low && parts.len() == MAX_LAYERS) {
                parts = vec![self.merged(worker, merged_id(&layer.chain_id)?, &parts)?];
            }
        }
        Ok((parts, config))
    }

    /// A layer of an image, on top of those that are made already.
    fn image_layer(
        &self,
        worker: &Worker,
        folder: BorrowedFd<'_>,
        id: LayerId,
        layer: &ImageLayer,
        step: &str,
        below: &[Part<'a>],
    ) -> Result<Part<'a>> {
        let blob = image::open_file(folder, &layer.place)?;
        let views = below.iter().rev().map(|part| view(worker, part)).collect::<Result<Vec<_>>>()?;
        let (staged, root) = self.stage(worker)?;
        let job = Job::Unpack { whiteouts: true, ids: UnpackIds::AsIs, layers: views.len() };
        let mut descriptors = vec![blob.as_fd()];
        descriptors.extend(views.iter().map(|view| view.as_fd()));
        descriptors.push(root.as_fd());
        let report = self.work(worker, &format!("unpacking {step}"), job, &descriptors)?;
        for (what, is, should) in [
            ("file", &report.stream_digest, layer.digest.as_ref()),
            ("content", &report.digest, Some(&layer.diff_id)),
        ] {
            if should.is_some() && is.as_ref() != should {
                return Err(image::bad(&format!("the {what} of {step} is not what its digest says")));
            }
        }
        Ok(Part::New { id, staged, root, bytes: report.bytes })
    }

    /// A layer that the store has, and that these sandboxes can use.
    fn there(&self, worker: &Worker, id: &LayerId) -> Result<Option<Part<'a>>> {
        let layer = Layer::open(self.home, id)?;
        Ok(layer.filter(|layer| layer.document.ids == *worker.ids()).map(Part::There))
    }

    /// One layer that means what all of these do.
    fn merged(&self, worker: &Worker, id: LayerId, parts: &[Part<'a>]) -> Result<Part<'a>> {
        let views = parts.iter().map(|part| view(worker, part)).collect::<Result<Vec<_>>>()?;
        let (staged, root) = self.stage(worker)?;
        let job = Job::Merge { layers: views.len(), keep_whiteouts: true };
        let mut descriptors: Vec<_> = views.iter().map(|fd| fd.as_fd()).collect();
        descriptors.push(root.as_fd());
        let report = self.work(worker, "merging layers", job, &descriptors)?;
        Ok(Part::New { id, staged, root, bytes: report.bytes })
    }

    /// Adds what a sandbox needs and the image lacks.
    fn complete(
        &self,
        worker: &Worker,
        mut parts: Vec<Part<'a>>,
        config: &ImageConfig,
    ) -> Result<(Vec<Part<'a>>, TemplateDefaults)> {
        let views = parts.iter().map(|part| view(worker, part)).collect::<Result<Vec<_>>>()?;
        let (staged, root) = self.stage(worker)?;
        let job = Job::Complete {
            layers: views.len(),
            user: config.user().map(str::to_owned),
            workdir: config.workdir().map(str::to_owned),
        };
        let mut descriptors: Vec<_> = views.iter().map(|fd| fd.as_fd()).collect();
        descriptors.push(root.as_fd());
        let report = self.work(worker, "looking for users", job, &descriptors)?;
        parts.drain(..report.hidden.min(parts.len()));
        if report.entries > 0 {
            parts.push(self.by_content(worker, staged, root, report.bytes)?);
        }
        let defaults = TemplateDefaults {
            env: config.env(),
            workdir: config.workdir().map(str::to_owned),
            user: report.user.map(UserName::new).transpose()?,
            start: if self.options.start { config.command() } else { Vec::new() },
            ready: Vec::new(),
        };
        defaults.check(OPERATION)?;
        if self.options.start && defaults.start.is_empty() {
            let why = "it has no command, and its command was to be the main command";
            return Err(image::bad(why).with_hint("leave the option out"));
        }
        Ok((parts, defaults))
    }

    fn publish(
        &self,
        id: &TemplateId,
        parts: Vec<Part<'a>>,
        defaults: TemplateDefaults,
        source_name: String,
    ) -> Result<Template> {
        let size =
            parts.iter().map(Part::bytes).try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)));
        let ids: Vec<LayerId> = parts.iter().rev().map(|part| part.id().clone()).collect();
        let lock = StoreLock::take(self.home, Hold::Alone, OPERATION)?;
        for part in parts {
            let again = |id: &LayerId, why: &str| {
                fail(ErrorKind::Conflict, OPERATION, format!("layer `{id}` {why}")).with_hint("try again")
            };
            match part {
                Part::There(layer) => {
                    let id = &layer.document.id;
                    if !self.home.has_layer(id)? {
                        return Err(again(id, "went while it was to be used"));
                    }
                }
                Part::New { id, staged, root, bytes } => {
                    let ids = staged.ids().clone();
                    drop(root);
                    if !staged.finish(&id, Some(bytes))? {
                        // Somebody else made it meanwhile.
                        let there = LayerDocument::read(self.home, &id)?;
                        if there.is_none_or(|there| there.ids != ids) {
                            return Err(again(
                                &id,
                                "is there already, made by another user or with other ids",
                            )
                            .with_hint("remove the template that has it, then try again"));
                        }
                    }
                }
            }
        }
        let boot = Boot { template: id.clone(), on_host: false, layers: ids, defaults };
        let origin = self.options.origin.clone().unwrap_or(source_name);
        let mut document = TemplateDocument::new(id.clone(), boot, origin);
        document.label.clone_from(&self.options.label);
        document.size_bytes = size;
        document.publish(self.home, &lock)?;
        // Those of the template in whose place it is. What does not go now, a later command removes.
        let _ = self.home.remove_unused_layers(&lock, LAYERS_REMOVED);
        drop(lock);
        let _ = sweep_layers(self.home, LAYERS_REMOVED);
        Ok(public(self.home, document))
    }

    fn by_content(&self, worker: &Worker, staged: Staged<'a>, root: OwnedFd, bytes: u64) -> Result<Part<'a>> {
        let report = self.work(worker, "reading", Job::Measure { digest: true }, &[root.as_fd()])?;
        let id = LayerId::of_content(report.digest.as_deref().unwrap_or_default())?;
        Ok(match self.there(worker, &id)? {
            Some(part) => part,
            None => Part::New { id, staged, root, bytes },
        })
    }

    fn stage(&self, worker: &Worker) -> Result<(Staged<'a>, OwnedFd)> {
        let staged = Staged::new(self.home, worker.ids().clone())?;
        let root = staged.make_part("root")?;
        worker.own(root.as_fd())?;
        Ok((staged, root))
    }

    fn work(&self, worker: &Worker, step: &str, job: Job, descriptors: &[BorrowedFd<'_>]) -> Result<Report> {
        let tell = |entries, bytes| {
            if let Some(listener) = &self.options.progress {
                listener(ImportProgress { step: step.to_owned(), entries, bytes });
            }
        };
        tell(0, 0);
        worker.run(
            Task {
                job,
                descriptors: descriptors.to_vec(),
                progress: &mut |far| tell(far.entries, far.bytes),
                cancel: Some(self.cancel),
            },
            OPERATION,
        )
    }
}

fn meaningless(option: &str, why: &str) -> sandbar_core::Error {
    fail(ErrorKind::InvalidInput, OPERATION, format!("it was said {option}, and {why}"))
        .with_hint("leave the option out")
}

/// The name of the one layer that an image's lowest ones become, of which the topmost has this chain id.
fn merged_id(chain_id: &str) -> Result<LayerId> {
    let mut hash = Sha256::new();
    hash.update("merged");
    hash.update(chain_id);
    LayerId::of_content(&hex(hash))
}

/// What is in a layer, for a worker.
fn view(worker: &Worker, part: &Part<'_>) -> Result<OwnedFd> {
    match part {
        Part::There(layer) => worker.view(layer.root.as_fd(), &layer.document.ids),
        Part::New { root, .. } => root.try_clone().map_err(|cause| io_error(OPERATION, "a layer", cause)),
    }
}
