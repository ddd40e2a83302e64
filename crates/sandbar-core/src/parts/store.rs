use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;

use crate::{GuestPath, Result, SandboxId, TemplateId, VolumeName};

/// Templates: file systems to boot from.
#[async_trait]
pub trait Templates: Send + Sync {
    /// Captures a sandbox's file system.
    ///
    /// # Behavior
    /// - Committing an id again replaces it, at once and whole; sandboxes made from the one before go on as they are.
    /// - A capture path that does not exist, or that is on or holds a mounted volume or folder of the host, is an error that names it, and nothing is made.
    /// - What gives privileges (setuid, setgid) and what is no file of the sandbox' own users does not survive.
    /// - What is told to the sandbox alone (its environment, name, secrets) is not in it.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let template = TemplateId::new("warm")?;
    /// let options = CommitOptions {
    ///     sandbox: sandbox.id().clone(),
    ///     template: template.clone(),
    ///     capture_paths: vec![GuestPath::new("/home/user")?],
    ///     label: None,
    /// };
    /// provider.require_templates()?.commit(options).await?;
    /// provider.create(CreateOptions::new().with_template(template.clone())).await?;
    /// assert_eq!(provider.require_templates()?.remove(&template).await.unwrap_err().kind(), ErrorKind::Conflict);
    /// # Ok(())
    /// # }
    /// ```
    async fn commit(&self, options: CommitOptions) -> Result<Template>;

    /// A template; `None` means that it positively does not exist.
    async fn get(&self, id: &TemplateId) -> Result<Option<Template>>;

    /// All templates whose id starts with `prefix`. Never short.
    async fn list(&self, prefix: &str) -> Result<Vec<Template>>;

    /// Removes one; `false` means that it was positively absent. Checks itself that no sandbox depends on it: then `Conflict`.
    async fn remove(&self, id: &TemplateId) -> Result<bool>;
}

/// What to capture.
#[derive(Clone, Debug)]
pub struct CommitOptions {
    /// Of which sandbox.
    pub sandbox: SandboxId,
    /// As what.
    pub template: TemplateId,
    /// Paths that have to be in it.
    pub capture_paths: Vec<GuestPath>,
    /// A word on it.
    pub label: Option<String>,
}

/// A template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Template {
    /// The caller's id.
    pub id: TemplateId,
    /// The backend's reference; opaque.
    pub reference: String,
    /// When it was captured.
    pub created_at: Option<Timestamp>,
    /// Its size in bytes.
    pub size_bytes: Option<u64>,
    /// The word on it.
    pub label: Option<String>,
    /// Whether a sandbox depends on it. Unknown counts as in use.
    pub in_use: bool,
}

/// Volumes: storage that outlives sandboxes.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// Makes a volume; `false` means that it was there already, its content kept.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let (volumes, name) = (provider.require_volumes()?, VolumeName::new("data")?);
    /// assert!(volumes.create(&name).await?);
    /// assert!(!volumes.create(&name).await?);
    /// let mount = VolumeMount { volume: name.clone(), path: GuestPath::new("/mnt/data")? };
    /// provider.create(CreateOptions::new().with_volume(mount)).await?;
    /// assert_eq!(volumes.remove(&name).await.unwrap_err().kind(), ErrorKind::Conflict);
    /// # Ok(())
    /// # }
    /// ```
    async fn create(&self, name: &VolumeName) -> Result<bool>;

    /// Whether it exists. A positive answer either way.
    async fn exists(&self, name: &VolumeName) -> Result<bool>;

    /// The volumes that match. Never short.
    async fn list(&self, query: VolumeQuery) -> Result<Vec<VolumeInfo>>;

    /// Removes one; `false` means that it was positively absent. Refuses with `Conflict` while attached.
    async fn remove(&self, name: &VolumeName) -> Result<bool>;
}

/// Which volumes.
#[derive(Clone, Debug, Default)]
pub struct VolumeQuery {
    /// Their names start with this.
    pub prefix: String,
    /// Only attached, or only unattached ones.
    pub attached: Option<bool>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeInfo {
    /// Its name.
    pub name: VolumeName,
    /// Whether a sandbox holds it, asleep and stopped ones included. Unknown counts as attached.
    pub attached: bool,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Its size in bytes.
    pub size_bytes: Option<u64>,
}
