use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::{
    Builds, CapacityReport, CreateOptions, EgressCheck, GetOptions, Query, Result, Sandbox, SandboxId,
    SandboxRecord, Templates, UsageHistory, Volumes,
};

/// A place that runs sandboxes.
#[async_trait]
pub trait SandboxProvider: Send + Sync + fmt::Debug {
    /// The backend's name, such as `local`.
    fn name(&self) -> &'static str;

    /// Makes a sandbox and answers when it is ready.
    ///
    /// # Behavior
    /// - Every option is honoured, or refused before any effect.
    /// - A missing template is an error, and nothing is left.
    /// - A create that fails half-way leaves nothing behind, or the error names what it left.
    /// - Labels of the caller can't override the backend's own.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let labels = Labels::new().with("purpose", "demo")?;
    /// let sandbox = provider.create(CreateOptions::new().with_labels(labels)).await?;
    /// assert_eq!(sandbox.record().await?.state, State::Running);
    ///
    /// let missing = CreateOptions::new().with_template(TemplateId::new("no-such-template")?);
    /// assert_eq!(provider.create(missing).await.unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    async fn create(&self, options: CreateOptions) -> Result<Arc<dyn Sandbox>>;

    /// A handle on an existing sandbox; `None` means that it positively does not exist.
    ///
    /// # Behavior
    /// - Does not wake, extend or touch the sandbox, unless `options` ask for it.
    /// - A lookup that failed is an error that says that the state is unknown.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// assert!(provider.get(sandbox.id()).await?.is_some());
    /// assert!(provider.get(&SandboxId::new("unknown")?).await?.is_none());
    ///
    /// provider.fail_next_lookup();
    /// let error = provider.get(sandbox.id()).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unavailable);
    /// # Ok(())
    /// # }
    /// ```
    async fn get_opts(&self, id: &SandboxId, options: GetOptions) -> Result<Option<Arc<dyn Sandbox>>>;

    /// The record of a sandbox; `None` means that it positively does not exist. As [`SandboxProvider::get_opts`], without a handle.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let record = provider.describe(sandbox.id()).await?.expect("it was just made");
    /// assert_eq!(record.isolation.tier, Isolation::Emulated);
    /// # Ok(())
    /// # }
    /// ```
    async fn describe(&self, id: &SandboxId) -> Result<Option<SandboxRecord>>;

    /// The records that match, each sandbox once. A listing that could not be completed ends with an error: it is never short.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let records = provider.list_all(Query::new().with_states([State::Running])).await?;
    /// assert_eq!(records[0].id, *sandbox.id());
    /// # Ok(())
    /// # }
    /// ```
    async fn list(&self, query: Query) -> Result<BoxStream<'static, Result<SandboxRecord>>>;

    /// Ends a sandbox and frees what it held; `false` means that it was positively absent already.
    ///
    /// Reports what it could not delete.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// assert!(provider.destroy(sandbox.id()).await?);
    /// assert!(!provider.destroy(sandbox.id()).await?);
    /// # Ok(())
    /// # }
    /// ```
    async fn destroy(&self, id: &SandboxId) -> Result<bool>;

    /// Templates, where the backend has them.
    fn templates(&self) -> Option<&dyn Templates> {
        None
    }

    /// Building templates from steps.
    fn builds(&self) -> Option<&dyn Builds> {
        None
    }

    /// Volumes.
    fn volumes(&self) -> Option<&dyn Volumes> {
        None
    }

    /// Observing what sandboxes can reach.
    fn egress(&self) -> Option<&dyn EgressCheck> {
        None
    }

    /// What room there is.
    fn capacity(&self) -> Option<&dyn CapacityReport> {
        None
    }

    /// What sandboxes that ended had used.
    fn usage(&self) -> Option<&dyn UsageHistory> {
        None
    }

    /// Why the part of this name is `None`, for people. `None` if the part is there or nobody knows.
    fn missing_reason(&self, part: &str) -> Option<String> {
        let _ = part;
        None
    }
}
