use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use sandbar_core::{
    Base, CreateOptions, Deadline, DeadlineMode, EndCause, Error, ErrorKind, GetOptions, Isolation,
    MemoryProvider, ProjectId, ProviderExt, Query, RestartPolicy, Result, Sandbox, SandboxId,
    SandboxProvider, SandboxRecord, Templates, UsageEntry, UsageHistory, UsageReport, VolumeInfo, VolumeName,
    VolumeQuery, Volumes, Wake,
};

use crate::gateway::Gateway;
use crate::mutation::Mutation;
use crate::sandbox::MutantSandbox;

/// The reference backend with one rule broken, or none.
#[derive(Debug)]
pub(crate) struct Mutant {
    inner: MemoryProvider,
    mutation: Option<Mutation>,
    gateways: Mutex<HashMap<SandboxId, Arc<Gateway>>>,
}

impl Mutant {
    pub(crate) fn new(inner: MemoryProvider, mutation: Option<Mutation>) -> Self {
        Self { inner, mutation, gateways: Mutex::default() }
    }

    fn gateway(&self, id: &SandboxId) -> Arc<Gateway> {
        self.gateways.lock().unwrap().entry(id.clone()).or_default().clone()
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn wrap(&self, inner: Arc<dyn Sandbox>) -> Arc<dyn Sandbox> {
        let gateway = self.gateway(inner.id());
        Arc::new(MutantSandbox::new(inner, self.mutation, gateway))
    }

    fn inner_volumes(&self) -> Result<&dyn Volumes> {
        self.inner.require_volumes()
    }
}

#[async_trait]
impl SandboxProvider for Mutant {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn create(&self, mut options: CreateOptions) -> Result<Arc<dyn Sandbox>> {
        match self.mutation {
            Some(Mutation::StoresSelfDeliveredEnv) => {
                for (name, value) in options.self_delivered_env.iter() {
                    options.labels.insert(name, value)?;
                }
            }
            Some(Mutation::DeliversSelfDeliveredEnv) => {
                for (name, value) in options.self_delivered_env.iter() {
                    options.env.insert(name, value)?;
                }
            }
            Some(Mutation::LabelsOverride) => {
                if let Some(project) = options.labels.get("projectId") {
                    options.project = Some(ProjectId::new(project)?);
                }
            }
            Some(Mutation::IgnoresIsolation) => options.min_isolation = Isolation::Emulated,
            Some(Mutation::IgnoresDeadline) => options.deadline = None,
            Some(Mutation::IgnoresMainCommand) => options.main = None,
            Some(Mutation::MainIgnoresFolder) => {
                if let Some(main) = &mut options.main {
                    main.cwd = None;
                }
            }
            Some(Mutation::MainIsNotRestarted) => {
                if let Some(main) = &mut options.main {
                    main.restart = RestartPolicy::No;
                }
            }
            _ => {}
        }
        let created = self.inner.create(options.clone()).await;
        let created = match created {
            Err(error) if self.is(Mutation::TemplateFallsBack) && error.kind() == ErrorKind::NotFound => {
                options.base = Base::Default;
                self.inner.create(options).await
            }
            Err(error) if self.is(Mutation::LeavesWreckage) => {
                self.inner.create(CreateOptions::new()).await?;
                Err(error)
            }
            created => created,
        };
        Ok(self.wrap(created?))
    }

    async fn get_opts(&self, id: &SandboxId, mut options: GetOptions) -> Result<Option<Arc<dyn Sandbox>>> {
        if self.is(Mutation::WakesOnGet) {
            options.wake = Wake::Yes;
        }
        match self.inner.get_opts(id, options).await {
            Err(_) if self.is(Mutation::FailedLookupIsNone) => Ok(None),
            found => Ok(found?.map(|sandbox| self.wrap(sandbox))),
        }
    }

    async fn describe(&self, id: &SandboxId) -> Result<Option<SandboxRecord>> {
        if self.is(Mutation::ExtendsOnDescribe)
            && let Some(sandbox) = self.inner.get(id).await?
        {
            let later = Deadline::In(Duration::from_secs(3600));
            sandbox.set_deadline(later, DeadlineMode::Set).await?;
        }
        match self.inner.describe(id).await? {
            None if self.is(Mutation::AbsenceIsAnError) => {
                Err(Error::not_found("describe", format!("sandbox `{id}`")))
            }
            found => Ok(found.map(|record| self.gateway(id).recorded(record, self.mutation))),
        }
    }

    async fn list(&self, mut query: Query) -> Result<BoxStream<'static, Result<SandboxRecord>>> {
        if self.is(Mutation::IgnoresProjectFilter) {
            query.project = None;
        }
        let rows = self.inner.list(query).await?;
        Ok(match self.mutation {
            Some(Mutation::HidesBrokenListing) => rows.filter(|row| std::future::ready(row.is_ok())).boxed(),
            Some(Mutation::ShortListing) => {
                let mut rows: Vec<_> = rows.collect().await;
                rows.pop();
                stream::iter(rows).boxed()
            }
            Some(Mutation::DuplicateRows) => rows
                .flat_map(|row| match row {
                    Ok(row) => stream::iter(vec![Ok(row.clone()), Ok(row)]),
                    Err(error) => stream::iter(vec![Err(error)]),
                })
                .boxed(),
            _ => rows,
        })
    }

    async fn destroy(&self, id: &SandboxId) -> Result<bool> {
        match self.inner.destroy(id).await {
            Err(_) if self.is(Mutation::FailedDestroyIsFalse) => Ok(false),
            Ok(false) if self.is(Mutation::DestroyIsAlwaysTrue) => Ok(true),
            destroyed => destroyed,
        }
    }

    fn templates(&self) -> Option<&dyn Templates> {
        self.inner.templates()
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
    }

    fn usage(&self) -> Option<&dyn UsageHistory> {
        Some(self)
    }

    fn missing_reason(&self, part: &str) -> Option<String> {
        self.inner.missing_reason(part)
    }
}

#[async_trait]
impl UsageHistory for Mutant {
    async fn ended(&self, id: Option<&SandboxId>) -> Result<UsageReport> {
        let mut report = self.inner.require_usage()?.ended(id).await?;
        match (self.mutation, id) {
            (Some(Mutation::UsageIsForgotten), _) => report.entries.clear(),
            (Some(Mutation::UsageOfTheLiving), Some(id)) if report.entries.is_empty() => {
                let now = jiff::Timestamp::now();
                report.entries.push(UsageEntry {
                    version: UsageEntry::VERSION,
                    id: id.clone(),
                    name: None,
                    created_at: now,
                    started_at: now,
                    ended_at: now,
                    cause: EndCause::Unknown,
                    wall_seconds: 0.0,
                    cpu_seconds: None,
                    memory_peak_bytes: None,
                    disk_bytes: None,
                });
            }
            _ => {}
        }
        Ok(report)
    }
}

#[async_trait]
impl Volumes for Mutant {
    async fn create(&self, name: &VolumeName) -> Result<bool> {
        let is_new = self.inner_volumes()?.create(name).await?;
        Ok(is_new || self.is(Mutation::VolumesAreAlwaysNew))
    }

    async fn exists(&self, name: &VolumeName) -> Result<bool> {
        match self.inner_volumes()?.exists(name).await {
            Err(_) if self.is(Mutation::FailedVolumeLookupIsFalse) => Ok(false),
            found => found,
        }
    }

    async fn list(&self, query: VolumeQuery) -> Result<Vec<VolumeInfo>> {
        if !self.is(Mutation::HeldVolumesAreFree) {
            return self.inner_volumes()?.list(query).await;
        }
        let wanted = query.attached;
        let all = self.inner_volumes()?.list(VolumeQuery { attached: None, ..query }).await?;
        let free = all.into_iter().map(|info| VolumeInfo { attached: false, ..info });
        Ok(free.filter(|_| wanted != Some(true)).collect())
    }

    async fn remove(&self, name: &VolumeName) -> Result<bool> {
        self.inner_volumes()?.remove(name).await
    }
}
