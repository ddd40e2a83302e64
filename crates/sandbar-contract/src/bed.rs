use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use sandbar_core::{
    CreateOptions, Error, GuestPath, Labels, Result, Sandbox, SandboxExt, SandboxId, SandboxName,
    SandboxProvider, SandboxRecord, TemplateId, VolumeName,
};
use tokio::sync::OnceCell;

use crate::check::{Checked, fail, skip};
use crate::harness::{Fault, Faulty, Feature, Harness};

/// The label that all sandboxes of a run carry.
pub(crate) const RUN_LABEL: &str = "contract-run";

/// What the cases of one run share.
pub(crate) struct Suite<'a> {
    pub(crate) harness: &'a dyn Harness,
    pub(crate) provider: Arc<dyn SandboxProvider>,
    shared: OnceCell<Arc<dyn Sandbox>>,
    /// Tells this run from others against the same backend.
    run: String,
    next: AtomicU64,
}

impl<'a> Suite<'a> {
    pub(crate) fn new(harness: &'a dyn Harness, provider: Arc<dyn SandboxProvider>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let run = format!("{now:x}-{}", std::process::id());
        Self { harness, provider, shared: OnceCell::new(), run, next: AtomicU64::new(0) }
    }

    pub(crate) fn labels(&self) -> Result<Labels> {
        Labels::new().with(RUN_LABEL, &self.run)
    }

    pub(crate) fn bed(&'a self) -> Bed<'a> {
        Bed { suite: self, made: Mutex::default(), volumes: Mutex::default(), templates: Mutex::default() }
    }

    /// Destroys what the run shares.
    pub(crate) async fn end(&self) -> Result<()> {
        if let Some(shared) = self.shared.get() {
            self.provider.destroy(shared.id()).await?;
        }
        Ok(())
    }
}

/// What one case stands on: the provider, sandboxes, and a record of what it made.
pub(crate) struct Bed<'a> {
    suite: &'a Suite<'a>,
    made: Mutex<Vec<SandboxId>>,
    volumes: Mutex<Vec<VolumeName>>,
    templates: Mutex<Vec<TemplateId>>,
}

impl Bed<'_> {
    pub(crate) fn provider(&self) -> &dyn SandboxProvider {
        &*self.suite.provider
    }

    /// A word that nobody else has.
    pub(crate) fn unique(&self, word: &str) -> String {
        format!("{word}-{}-{}", self.suite.run, self.suite.next.fetch_add(1, Ordering::Relaxed))
    }

    /// What every sandbox of the kit starts from.
    pub(crate) fn options(&self) -> Checked<CreateOptions> {
        let mut options = self.suite.harness.options();
        options.labels.insert(RUN_LABEL, &self.suite.run)?;
        Ok(options)
    }

    /// As [`Bed::options`], with a label that only this call's sandboxes have; and that label.
    pub(crate) fn marked_options(&self) -> Checked<(CreateOptions, Labels)> {
        let mut options = self.options()?;
        let mark = self.unique("mark");
        options.labels.insert("contract-mark", &mark)?;
        Ok((options, Labels::new().with("contract-mark", mark)?))
    }

    /// Creates a sandbox that is destroyed after the case.
    pub(crate) async fn create(&self, options: CreateOptions) -> Result<Arc<dyn Sandbox>> {
        let sandbox = self.suite.provider.create(options).await?;
        self.adopt(sandbox.id());
        Ok(sandbox)
    }

    /// Destroys the sandbox after the case.
    pub(crate) fn adopt(&self, id: &SandboxId) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(id.clone());
    }

    /// A sandbox of the case's own.
    pub(crate) async fn fresh(&self) -> Checked<Arc<dyn Sandbox>> {
        Ok(self.create(self.options()?).await?)
    }

    /// A sandbox that many cases use at the same time.
    pub(crate) async fn shared(&self) -> Checked<Arc<dyn Sandbox>> {
        let make = async || -> Result<Arc<dyn Sandbox>, Error> {
            let mut options = self.suite.harness.options();
            options.labels.insert(RUN_LABEL, &self.suite.run)?;
            self.suite.provider.create(options).await
        };
        Ok(self.suite.shared.get_or_try_init(make).await?.clone())
    }

    /// The shared sandbox and a new folder in it.
    pub(crate) async fn place(&self) -> Checked<(Arc<dyn Sandbox>, GuestPath)> {
        let sandbox = self.shared().await?;
        let folder = self.folder(&*sandbox).await?;
        Ok((sandbox, folder))
    }

    /// A new folder.
    pub(crate) async fn folder(&self, sandbox: &dyn Sandbox) -> Checked<GuestPath> {
        let folder = GuestPath::new(format!("/tmp/{}", self.unique("contract")))?;
        sandbox.files().make_dir(&folder).await?;
        Ok(folder)
    }

    /// A sandbox of the case's own that can sleep, or the reason to skip.
    pub(crate) async fn sleeper(&self) -> Checked<Arc<dyn Sandbox>> {
        let shared = self.shared().await?;
        crate::check::part(shared.pausing(), &*shared, "pausing")?;
        let sandbox = self.fresh().await?;
        sandbox.require_pausing()?.hibernate().await?;
        Ok(sandbox)
    }

    /// A name for a sandbox.
    pub(crate) fn name(&self) -> Checked<SandboxName> {
        Ok(SandboxName::new(self.unique("kit"))?)
    }

    /// A name for a volume, which is removed after the case.
    pub(crate) fn volume(&self) -> Checked<VolumeName> {
        let name = VolumeName::new(self.unique("kit"))?;
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        Ok(name)
    }

    /// An id for a template, which is removed after the case.
    pub(crate) fn template(&self) -> Checked<TemplateId> {
        let id = TemplateId::new(self.unique("kit"))?;
        self.templates.lock().unwrap_or_else(PoisonError::into_inner).push(id.clone());
        Ok(id)
    }

    /// An id of the right form that no sandbox has.
    pub(crate) fn absent_id(&self) -> Checked<SandboxId> {
        Ok(SandboxId::new(self.unique("absent"))?)
    }

    /// The record of a sandbox that has to exist.
    pub(crate) async fn describe(&self, id: &SandboxId) -> Checked<SandboxRecord> {
        match self.provider().describe(id).await? {
            Some(record) => Ok(record),
            None => fail(format!("`{id}` exists and is described as absent")),
        }
    }

    /// Skips unless the backend has `feature`.
    pub(crate) fn need(&self, feature: Feature) -> Checked {
        match self.suite.harness.lacks(feature) {
            None => Ok(()),
            Some(why) => skip(why),
        }
    }

    /// Ends all processes of a sandbox; `false` if that can't be done.
    pub(crate) async fn stop(&self, sandbox: &SandboxId) -> bool {
        self.suite.harness.stop(sandbox).await
    }

    /// A provider of its own that can be made to fail.
    pub(crate) async fn faulty(&self) -> Checked<FaultyBed> {
        match self.suite.harness.faulty().await {
            Some(faulty) => Ok(FaultyBed { faulty, options: self.options()? }),
            None => skip("the harness can't inject failures"),
        }
    }

    /// Destroys what the case made.
    pub(crate) async fn clear(self) -> Result<()> {
        let mut first = Ok(());
        for id in self.made.into_inner().unwrap_or_else(PoisonError::into_inner) {
            first = first.and(self.suite.provider.destroy(&id).await.map(drop));
        }
        if let Some(volumes) = self.suite.provider.volumes() {
            for name in self.volumes.into_inner().unwrap_or_else(PoisonError::into_inner) {
                first = first.and(volumes.remove(&name).await.map(drop));
            }
        }
        if let Some(templates) = self.suite.provider.templates() {
            for id in self.templates.into_inner().unwrap_or_else(PoisonError::into_inner) {
                first = first.and(templates.remove(&id).await.map(drop));
            }
        }
        first
    }
}

/// A provider that can be made to fail, and what its sandboxes start from.
pub(crate) struct FaultyBed {
    faulty: Faulty,
    pub(crate) options: CreateOptions,
}

impl FaultyBed {
    pub(crate) fn provider(&self) -> &dyn SandboxProvider {
        &*self.faulty.provider
    }

    /// Arms a failure, or skips.
    pub(crate) fn arm(&self, fault: Fault) -> Checked {
        if (self.faulty.arm)(fault) { Ok(()) } else { skip(format!("{fault:?} failures can't be injected")) }
    }
}
