use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use sandbar_core::{
    Builds, CapacityReport, CreateOptions, EgressCheck, ErrorKind, GetOptions, Query, Result, Sandbox,
    SandboxId, SandboxProvider, SandboxRecord, Templates, UsageHistory, Volumes, Wake,
};
use sandbar_observe::AuditConfig;

use crate::audit::AuditOrders;
use crate::config::{BACKEND, Defaults, LocalConfig};
use crate::doctor;
use crate::env::Environment;
use crate::error::{fail, io_error};
use crate::helper::Shim;
use crate::home::Home;
use crate::janitor;
use crate::observe::Observed;
use crate::sandbox::LocalSandbox;
use crate::shim::protocol::{CreateOrders, Report, Shape, Task};
use crate::spare::Spares;
use crate::store::LayerId;
use crate::template::Base;
use crate::templates::LocalTemplates;
use crate::volumes::LocalVolumes;
use crate::{descriptor, destroy, helper, options};

/// How long the process of a shim may take to end after its last answer.
const CHILD_END: std::time::Duration = std::time::Duration::from_secs(2);

/// Sandboxes on this Linux machine.
///
/// There is no daemon: each sandbox has a shim, a small process of its own, and every process that opens the same data folder sees every
/// sandbox. A sandbox of [`Lifetime::Owned`](sandbar_core::Lifetime::Owned) ends with this process, and no later than when the provider that
/// made it and its handles are dropped.
///
/// A writable mount belongs, inside, to the sandbox' user: for root the owner of the mounted folder is shown as that user; for anybody else a
/// sandbox with a writable mount has a single id, the caller's own, whatever subordinate ids there are, and `root` is refused in it.
///
/// From its second creation on, the provider keeps the next sandbox ready in advance (see [`Spare`](crate::Spare)).
///
/// Calls need a Tokio runtime with I/O and time enabled.
#[derive(Clone)]
pub struct LocalProvider {
    inner: Arc<Inner>,
    pub(crate) templates: LocalTemplates,
    volumes: LocalVolumes,
}

/// What handles have in common.
pub(crate) struct Inner {
    pub(crate) home: PathBuf,
    helper: Option<PathBuf>,
    environment: Environment,
    defaults: Defaults,
    audit: Option<AuditConfig>,
    /// Our ends of the pipes of sandboxes that belong to this process.
    owned: Mutex<BTreeMap<SandboxId, OwnedFd>>,
    /// Shims that this process started, and the sandboxes they are of: somebody has to take note of their end.
    children: Mutex<Vec<(Option<SandboxId>, Child)>>,
    /// What is made ready for the next creation.
    spares: Spares,
}

impl LocalProvider {
    /// Opens the backend. Makes nothing; a data folder that is there is checked.
    pub fn open(config: LocalConfig) -> Result<Self> {
        let environment = Environment::read();
        let home = config.resolve_home(&environment)?;
        Home::open(&home)?;
        let LocalConfig { home: _, helper, defaults, spare, audit } = config;
        audit.iter().try_for_each(AuditConfig::check)?;
        let inner = Inner {
            home,
            helper,
            environment,
            defaults,
            audit,
            owned: Mutex::default(),
            children: Mutex::default(),
            spares: Spares::new(spare),
        };
        let inner = Arc::new(inner);
        Ok(Self {
            templates: LocalTemplates { inner: Arc::clone(&inner) },
            volumes: LocalVolumes { inner: Arc::clone(&inner) },
            inner,
        })
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Where the data folder is.
    pub fn home(&self) -> &Path {
        &self.inner.home
    }
}

#[async_trait]
impl SandboxProvider for LocalProvider {
    fn name(&self) -> &'static str {
        BACKEND
    }

    async fn create(&self, options: CreateOptions) -> Result<Arc<dyn Sandbox>> {
        let mut orders = options::resolve(options, &self.inner.home, &self.inner.defaults)?;
        orders.audit = self.inner.audit.clone().map(AuditOrders::of_task);
        self.inner.make(orders, "create").await
    }

    async fn get_opts(&self, id: &SandboxId, options: GetOptions) -> Result<Option<Arc<dyn Sandbox>>> {
        let GetOptions { wake } = options;
        if self.inner.look(id, "get")?.is_none() {
            return Ok(None);
        }
        let sandbox = LocalSandbox::new(Arc::clone(&self.inner), id.clone());
        if wake == Wake::Yes {
            sandbox.wake().await?;
        }
        Ok(Some(Arc::new(sandbox)))
    }

    async fn describe(&self, id: &SandboxId) -> Result<Option<SandboxRecord>> {
        let Some(seen) = self.inner.look(id, "describe")? else { return Ok(None) };
        Ok(Some(seen.public(Base::observe().ok().as_ref())))
    }

    async fn list(&self, query: Query) -> Result<BoxStream<'static, Result<SandboxRecord>>> {
        let Some(home) = Home::open(&self.inner.home)? else { return Ok(stream::empty().boxed()) };
        let ids = home
            .ids()
            .map_err(|cause| io_error("list", &format!("`{}/sandboxes`", home.path().display()), cause))?;
        let base = Base::observe().ok();
        let records = ids.into_iter().filter_map(move |id| match Observed::look(&home, &id, "list") {
            Ok(seen) => seen.map(|seen| Ok(seen.public(base.as_ref()))),
            Err(error) => Some(Err(error)),
        });
        // The first error is the end: what follows it would look like a whole listing.
        let mut failed = false;
        let records = records.take_while(move |record| !std::mem::replace(&mut failed, record.is_err()));
        let matching =
            records.filter(move |record| record.as_ref().map_or(true, |record| query.matches(record)));
        Ok(stream::iter(matching).boxed())
    }

    async fn destroy(&self, id: &SandboxId) -> Result<bool> {
        self.inner.destroy(id).await
    }

    fn builds(&self) -> Option<&dyn Builds> {
        Some(self)
    }

    fn capacity(&self) -> Option<&dyn CapacityReport> {
        Some(self)
    }

    fn egress(&self) -> Option<&dyn EgressCheck> {
        Some(self)
    }

    fn usage(&self) -> Option<&dyn UsageHistory> {
        Some(self)
    }

    fn templates(&self) -> Option<&dyn Templates> {
        Some(&self.templates)
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(&self.volumes)
    }
}

impl Inner {
    /// Limits where nobody asks for others.
    pub(crate) fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// Makes a sandbox to orders.
    pub(crate) async fn make(
        self: &Arc<Self>,
        orders: CreateOrders,
        operation: &'static str,
    ) -> Result<Arc<dyn Sandbox>> {
        let is_owned = orders.owner.is_some();
        doctor::check_limits(&self.home)?;
        let executable = self.executable()?;
        let home = Home::open(&self.home)?;
        let shape = orders.shape();
        let abandon = |child| self.adopt_child(None, child);
        let task = Task::Create(Box::new(orders));
        let bound = helper::report_bound(&task, None);
        let line = helper::line(&self.home, task, operation)?;
        // What a copy boots from is made for it, and no other is made of that in advance.
        let is_copy = shape.boot.layers.first().is_some_and(LayerId::is_snapshot);
        let spare = if is_copy { None } else { self.spares.take(&shape, abandon) };
        let is_ready = spare.is_some();
        let shim = match spare {
            Some(shim) => shim,
            None => Shim::spawn(&executable, &self.home, operation)?,
        };
        let mut ordered = std::pin::pin!(shim.order(line, bound, &self.home, operation, &abandon));
        // What is prepared has its place already and works while this one looks for leftovers; else they are found before there is something new.
        let early = if is_ready { futures::poll!(ordered.as_mut()) } else { Poll::Pending };
        let work = home.and_then(janitor::Work::find);
        let tidying = work.map(|work| tokio::task::spawn_blocking(|| work.run()));
        let started = match early {
            Poll::Ready(started) => started,
            Poll::Pending => ordered.await,
        };
        if let Some(tidying) = tidying {
            // What it could not remove, the command that names it will tell.
            let _ = tidying.await;
        }
        let started = started?;
        let id = match &started.report {
            Report::Ready { id, .. } => Some(id.clone()),
            _ => None,
        };
        self.adopt_child(id, started.child);
        match started.report {
            Report::Ready { id, .. } => {
                if !is_copy && self.spares.created(&shape) {
                    self.prepare(executable, shape);
                }
                if is_owned {
                    self.own(id.clone(), started.owner);
                }
                Ok(Arc::new(LocalSandbox::new(Arc::clone(self), id)))
            }
            Report::Failed(error) => Err(error.into_error(operation)),
            Report::Guarded => {
                Err(fail(ErrorKind::Protocol, operation, "the shim took a creation for a take-over"))
            }
        }
    }

    /// The executable for shims.
    pub(crate) fn executable(&self) -> Result<PathBuf> {
        helper::find(self.helper.as_deref(), &self.environment)
    }

    /// Has the next sandbox prepared, aside and at a good moment. By a thread: a runtime may be driven during calls only, and the moment is between them.
    fn prepare(self: &Arc<Self>, executable: PathBuf, shape: Shape) {
        let (weak, moment) = (Arc::downgrade(self), self.spares.moment());
        let since = moment.now();
        let work = move || {
            moment.await_after(since);
            if let Some(inner) = weak.upgrade() {
                let abandon = |child| inner.adopt_child(None, child);
                inner.spares.prepare(&executable, &inner.home, shape, abandon);
            }
        };
        // Without a thread there is no spare, and the next creation tries again.
        if std::thread::Builder::new().name("sandbar-spare".to_owned()).spawn(work).is_err() {
            self.spares.unprepared();
        }
    }

    /// What stands in the data folder under `id`.
    pub(crate) fn look(&self, id: &SandboxId, operation: &'static str) -> Result<Option<Observed>> {
        let Some(home) = Home::open(&self.home)? else { return Ok(None) };
        Observed::look(&home, id, operation)
    }

    /// Ends a sandbox, and removes what others left.
    pub(crate) async fn destroy(&self, id: &SandboxId) -> Result<bool> {
        let Some(home) = Home::open(&self.home)? else { return Ok(false) };
        let destroyed = destroy::destroy(&home, id).await;
        lock(&self.owned).remove(id);
        if let Some(home) = Home::open(&self.home)? {
            let _ = tokio::task::spawn_blocking(move || janitor::drop_layers(&home)).await;
        }
        if let Some(work) = janitor::Work::find(home) {
            // What it could not remove, the command that names it will tell.
            let _ = tokio::task::spawn_blocking(|| work.run()).await;
        }
        if matches!(destroyed, Ok(true)) {
            self.await_child(id).await;
        }
        self.reap();
        self.spares.destroyed();
        destroyed
    }

    /// Waits for the end of a shim that answered for the last time, so that a caller which destroyed its sandbox has no process left of it.
    async fn await_child(&self, id: &SandboxId) {
        let pids: Vec<_> = lock(&self.children)
            .iter()
            .filter(|(of, _)| of.as_ref() == Some(id))
            .map(|(_, child)| rustix::process::Pid::from_child(child))
            .collect();
        for pid in pids {
            // It is a child that nobody has waited for yet, so its number is its own.
            let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
                continue;
            };
            if let Ok(ended) = descriptor::watch(pidfd) {
                let _ = tokio::time::timeout(CHILD_END, ended.readable()).await;
            }
        }
    }

    /// Keeps a started shim to take note of its end.
    pub(crate) fn adopt_child(&self, id: Option<SandboxId>, child: Child) {
        lock(&self.children).push((id, child));
        self.reap();
    }

    /// Keeps the pipe of a sandbox that belongs to this process.
    pub(crate) fn own(&self, id: SandboxId, pipe: OwnedFd) {
        lock(&self.owned).insert(id, pipe);
    }

    /// Takes note of shims that ended.
    fn reap(&self) {
        lock(&self.children).retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("home", &self.home).finish_non_exhaustive()
    }
}

impl fmt::Debug for LocalProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalProvider").field("home", &self.inner.home).finish_non_exhaustive()
    }
}
