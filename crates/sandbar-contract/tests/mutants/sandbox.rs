use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use sandbar_core::{
    Commands, Deadline, DeadlineAction, DeadlineMode, FileChange, Files, Forking, GuestPath,
    HibernationOutcome, MainProcess, Metrics, Network, Pausing, Processes, ResourceControl, Result, Sandbox,
    SandboxExt, SandboxId, SandboxRecord, WatchEvents, WatchOptions, Watching,
};

use crate::gateway::Gateway;
use crate::mutation::Mutation;

/// A handle with one rule broken, or none.
#[derive(Debug)]
pub(crate) struct MutantSandbox {
    pub(crate) inner: Arc<dyn Sandbox>,
    pub(crate) mutation: Option<Mutation>,
    /// What the reference backend does not emulate.
    pub(crate) gateway: Arc<Gateway>,
}

impl MutantSandbox {
    pub(crate) fn new(inner: Arc<dyn Sandbox>, mutation: Option<Mutation>, gateway: Arc<Gateway>) -> Self {
        Self { inner, mutation, gateway }
    }

    pub(crate) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}

#[async_trait]
impl Sandbox for MutantSandbox {
    fn id(&self) -> &SandboxId {
        self.inner.id()
    }

    async fn record(&self) -> Result<SandboxRecord> {
        Ok(self.gateway.recorded(self.inner.record().await?, self.mutation))
    }

    fn commands(&self) -> &dyn Commands {
        self
    }

    fn files(&self) -> &dyn Files {
        self
    }

    async fn preview_url(&self, port: u16) -> Result<String> {
        self.inner.preview_url(port).await
    }

    async fn set_deadline(&self, deadline: Deadline, mode: DeadlineMode) -> Result<Option<jiff::Timestamp>> {
        let mode = if self.is(Mutation::ExtendShortens) { DeadlineMode::Set } else { mode };
        self.inner.set_deadline(deadline, mode).await
    }

    async fn wake(&self) -> Result<()> {
        self.inner.wake().await
    }

    async fn destroy(&self) -> Result<bool> {
        self.inner.destroy().await
    }

    fn processes(&self) -> Option<&dyn Processes> {
        Some(self)
    }

    fn watching(&self) -> Option<&dyn Watching> {
        Some(self)
    }

    fn metrics(&self) -> Option<&dyn Metrics> {
        self.inner.metrics()
    }

    fn pausing(&self) -> Option<&dyn Pausing> {
        Some(self)
    }

    fn forking(&self) -> Option<&dyn Forking> {
        self.inner.forking()
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(self)
    }

    fn main_command(&self) -> Option<&dyn MainProcess> {
        Some(self)
    }

    fn resources(&self) -> Option<&dyn ResourceControl> {
        Some(self)
    }

    fn missing_reason(&self, part: &str) -> Option<String> {
        self.inner.missing_reason(part)
    }
}

#[async_trait]
impl Watching for MutantSandbox {
    async fn watch(&self, path: &GuestPath, options: WatchOptions) -> Result<WatchEvents> {
        let changes = self.inner.require_watching()?.watch(path, options).await?;
        let tells_one = self.is(Mutation::RenameTellsOneName);
        let told = move |change: Result<FileChange>| {
            change.map(|change| if tells_one { FileChange { to: None, ..change } } else { change })
        };
        Ok(changes.map(told).boxed())
    }
}

#[async_trait]
impl Pausing for MutantSandbox {
    async fn hibernate(&self) -> Result<HibernationOutcome> {
        if self.is(Mutation::HibernateIsANoOp) {
            let mechanism = "nothing".to_owned();
            return Ok(HibernationOutcome { processes_preserved: true, mechanism, detail: None });
        }
        let mut outcome = self.inner.require_pausing()?.hibernate().await?;
        if self.is(Mutation::HibernateClaims) {
            outcome.processes_preserved = false;
        }
        Ok(outcome)
    }

    async fn resume(&self) -> Result<HibernationOutcome> {
        self.inner.require_pausing()?.resume().await
    }

    async fn set_deadline_action(&self, action: DeadlineAction) -> Result<()> {
        self.inner.require_pausing()?.set_deadline_action(action).await
    }
}
