//! The local backend, with every sandbox' commands, files, processes, watches and trees over a plain `envd`.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;
use sandbar_core::{
    Archive, Commands, CreateOptions, Deadline, DeadlineMode, Files, GetOptions, Pausing, Processes, Query,
    Result, Sandbox, SandboxId, SandboxProvider, SandboxRecord, Watching,
};
use sandbar_guest::EnvdClient;

use crate::plain::Plain;

#[derive(Debug)]
pub(crate) struct OverEnvd(pub(crate) Arc<dyn SandboxProvider>);

#[derive(Debug)]
struct Over {
    inner: Arc<dyn Sandbox>,
    client: EnvdClient,
}

pub(crate) fn over(inner: Arc<dyn Sandbox>) -> Arc<dyn Sandbox> {
    let client = EnvdClient::new(Arc::new(Plain(Arc::clone(&inner))));
    Arc::new(Over { inner, client })
}

#[async_trait]
impl SandboxProvider for OverEnvd {
    fn name(&self) -> &'static str {
        "plain"
    }

    async fn create(&self, options: CreateOptions) -> Result<Arc<dyn Sandbox>> {
        self.0.create(options).await.map(over)
    }

    async fn get_opts(&self, id: &SandboxId, options: GetOptions) -> Result<Option<Arc<dyn Sandbox>>> {
        Ok(self.0.get_opts(id, options).await?.map(over))
    }

    async fn describe(&self, id: &SandboxId) -> Result<Option<SandboxRecord>> {
        self.0.describe(id).await
    }

    async fn list(&self, query: Query) -> Result<BoxStream<'static, Result<SandboxRecord>>> {
        self.0.list(query).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<bool> {
        self.0.destroy(id).await
    }
}

#[async_trait]
impl Sandbox for Over {
    fn id(&self) -> &SandboxId {
        self.inner.id()
    }

    async fn record(&self) -> Result<SandboxRecord> {
        self.inner.record().await
    }

    fn commands(&self) -> &dyn Commands {
        &self.client
    }

    fn files(&self) -> &dyn Files {
        &self.client
    }

    async fn preview_url(&self, port: u16) -> Result<String> {
        self.inner.preview_url(port).await
    }

    async fn set_deadline(&self, deadline: Deadline, mode: DeadlineMode) -> Result<Option<Timestamp>> {
        self.inner.set_deadline(deadline, mode).await
    }

    async fn wake(&self) -> Result<()> {
        self.inner.wake().await
    }

    async fn destroy(&self) -> Result<bool> {
        self.inner.destroy().await
    }

    fn processes(&self) -> Option<&dyn Processes> {
        Some(&self.client)
    }

    fn watching(&self) -> Option<&dyn Watching> {
        Some(&self.client)
    }

    fn archive(&self) -> Option<&dyn Archive> {
        Some(&self.client)
    }

    fn pausing(&self) -> Option<&dyn Pausing> {
        self.inner.pausing()
    }
}
