use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sandbar_core::{
    Archive, Commands, Deadline, DeadlineMode, Files, Forking, Guest, MainProcess, Metrics, Network, Pausing,
    Ports, Processes, ResourceControl, Result, Sandbox, SandboxId, SandboxRecord, Watching,
};
use serde_json::{Map, Value, json};

use super::{Observation, Operation, Target};

/// A handle on a sandbox that tells what is done through it. It is its own parts; which of them there are is what the other handle says.
pub(crate) struct ObservedSandbox {
    pub(super) inner: Arc<dyn Sandbox>,
    pub(super) observation: Arc<Observation>,
    pub(super) backend: &'static str,
    pub(super) target: Target,
}

impl ObservedSandbox {
    pub(super) fn new(
        inner: Arc<dyn Sandbox>,
        observation: Arc<Observation>,
        backend: &'static str,
        target: Target,
    ) -> Self {
        Self { inner, observation, backend, target }
    }

    pub(super) async fn begin(
        &self,
        op: &'static str,
        detail: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<Operation> {
        Operation::begin(&self.observation, self.backend, op, &self.target, detail).await
    }

    /// Does `work` as operation `op`.
    pub(super) async fn tell<T>(
        &self,
        op: &'static str,
        detail: impl FnOnce(&mut Map<String, Value>),
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let operation = self.begin(op, detail).await?;
        let done = operation.cause(work).await;
        operation.end(done).await
    }
}

#[async_trait]
impl Sandbox for ObservedSandbox {
    fn id(&self) -> &SandboxId {
        self.inner.id()
    }

    async fn record(&self) -> Result<SandboxRecord> {
        self.inner.record().await
    }

    fn commands(&self) -> &dyn Commands {
        self
    }

    fn files(&self) -> &dyn Files {
        self
    }

    async fn preview_url(&self, port: u16) -> Result<String> {
        self.tell("preview_url", |detail| port_detail(port, detail), self.inner.preview_url(port)).await
    }

    async fn set_deadline(&self, deadline: Deadline, mode: DeadlineMode) -> Result<Option<Timestamp>> {
        let mut operation = self
            .begin("set_deadline", |detail| {
                let wanted = match deadline {
                    Deadline::At(at) => json!(at),
                    Deadline::In(after) => json!(after.as_secs_f64()),
                    Deadline::Never => json!("never"),
                };
                detail.insert("wanted".into(), wanted);
                detail.insert("extend_only".into(), (mode == DeadlineMode::ExtendOnly).into());
            })
            .await?;
        let set = operation.cause(self.inner.set_deadline(deadline, mode)).await;
        if let Ok(deadline) = &set {
            operation.detail("deadline", json!(deadline));
        }
        operation.end(set).await
    }

    async fn wake(&self) -> Result<()> {
        self.tell("wake", |_| {}, self.inner.wake()).await
    }

    async fn destroy(&self) -> Result<bool> {
        let mut operation =
            Operation::begin_end(&self.observation, self.backend, "destroy", &self.target).await;
        let destroyed = operation.cause(self.inner.destroy()).await;
        if let Ok(existed) = destroyed {
            operation.detail("existed", existed);
        }
        operation.end_regardless(destroyed).await
    }

    fn processes(&self) -> Option<&dyn Processes> {
        self.inner.processes().map(|_| self as &dyn Processes)
    }

    fn watching(&self) -> Option<&dyn Watching> {
        self.inner.watching().map(|_| self as &dyn Watching)
    }

    fn ports(&self) -> Option<&dyn Ports> {
        self.inner.ports().map(|_| self as &dyn Ports)
    }

    fn metrics(&self) -> Option<&dyn Metrics> {
        // Measuring changes nothing and shows nothing of what is in it.
        self.inner.metrics()
    }

    fn pausing(&self) -> Option<&dyn Pausing> {
        self.inner.pausing().map(|_| self as &dyn Pausing)
    }

    fn forking(&self) -> Option<&dyn Forking> {
        self.inner.forking().map(|_| self as &dyn Forking)
    }

    fn archive(&self) -> Option<&dyn Archive> {
        self.inner.archive().map(|_| self as &dyn Archive)
    }

    fn resources(&self) -> Option<&dyn ResourceControl> {
        self.inner.resources().map(|_| self as &dyn ResourceControl)
    }

    fn main_command(&self) -> Option<&dyn MainProcess> {
        self.inner.main_command().map(|_| self as &dyn MainProcess)
    }

    fn network(&self) -> Option<&dyn Network> {
        self.inner.network().map(|_| self as &dyn Network)
    }

    fn guest(&self) -> Option<&dyn Guest> {
        self.inner.guest().map(|_| self as &dyn Guest)
    }

    fn missing_reason(&self, part: &str) -> Option<String> {
        self.inner.missing_reason(part)
    }
}

pub(super) fn port_detail(port: u16, detail: &mut Map<String, Value>) {
    detail.insert("port".into(), port.into());
}

impl fmt::Debug for ObservedSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
