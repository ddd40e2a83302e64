use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use crate::{DeadlineAction, EgressPolicy, LimitDemand, Resources, Result, Sandbox, SandboxName};

/// Hibernate and resume.
#[async_trait]
pub trait Pausing: Send + Sync {
    /// Suspends the sandbox. Either it is suspended when this answers, or there is an error and it is as before.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// assert!(sandbox.require_pausing()?.hibernate().await?.processes_preserved);
    /// assert_eq!(sandbox.record().await?.state, State::Sleeping);
    /// sandbox.require_pausing()?.resume().await?;
    /// assert_eq!(sandbox.record().await?.state, State::Running);
    /// # Ok(())
    /// # }
    /// ```
    async fn hibernate(&self) -> Result<HibernationOutcome>;

    /// Resumes it. The outcome is what was observed afterwards.
    ///
    /// # Behavior
    /// - One that is put to sleep at its deadline ([`DeadlineAction::Pause`]) has as much time again as it was given last, and never less than before. A copy that is made of it
    ///   while it sleeps has that, too.
    /// - One that is destroyed at its deadline has no more time by a sleep.
    async fn resume(&self) -> Result<HibernationOutcome>;

    /// Changes what happens at the deadline.
    async fn set_deadline_action(&self, action: DeadlineAction) -> Result<()>;
}

/// What a suspension cost, observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HibernationOutcome {
    /// Whether the processes from before run after the call, or will after resume.
    pub processes_preserved: bool,
    /// A name for logs; not to branch on.
    pub mechanism: String,
    /// More, for a person.
    pub detail: Option<String>,
}

/// Copies of a sandbox.
#[async_trait]
pub trait Forking: Send + Sync {
    /// Makes a copy that goes its own way from now on.
    ///
    /// # Behavior
    /// - Files, template, labels, project, environment, limits, deadline and policy pass on; id, machine id, host name, name, published ports, the main
    ///   command and anything that was signed or made for the parent do not.
    /// - What the parent writes afterwards is never in the copy, nor the other way round.
    /// - The parent goes on, as far as it ran; one that sleeps or is stopped stays so.
    /// - Either there is a copy when this answers, or there is an error and the parent is as before.
    /// - A parent with volumes is `Unsupported` unless the options say what becomes of them; a writable mount of the host's is `Unsupported`.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let path = GuestPath::new("/tmp/file")?;
    /// sandbox.files().write(&path, "parent's".into()).await?;
    /// let (copy, _) = sandbox.require_forking()?.fork(ForkOptions::default()).await?;
    /// copy.files().write(&path, "copy's".into()).await?;
    /// assert_eq!(sandbox.files().read(&path).await?, "parent's");
    /// # Ok(())
    /// # }
    /// ```
    async fn fork(&self, options: ForkOptions) -> Result<(Arc<dyn Sandbox>, ForkOutcome)>;
}

/// How to fork.
#[derive(Clone, Debug, Default)]
pub struct ForkOptions {
    /// The copy's name.
    pub name: Option<SandboxName>,
    /// The copy's policy; the parent's if absent.
    pub egress: Option<EgressPolicy>,
    /// What becomes of the parent's volumes.
    pub volumes: ForkVolumes,
}

/// What becomes of a parent's volumes in a copy: two that write to one volume would not go their own ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForkVolumes {
    /// A parent with volumes is not forked.
    #[default]
    Refuse,
    /// The copy has them where its parent has, and can't write to them.
    ShareReadOnly,
}

/// What a fork did, observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForkOutcome {
    /// A name for logs; not to branch on.
    pub mechanism: String,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Whether the parent's processes run in the copy.
    pub processes_preserved: bool,
}

/// Changing limits while it runs.
#[async_trait]
pub trait ResourceControl: Send + Sync {
    /// Changes the limits given and no other, at once.
    ///
    /// # Behavior
    /// - The record has the new limits when this answers, with what stands behind each.
    /// - A limit that can't be changed here is `Unsupported`, and then none is changed; so is one that is not enforced where that is demanded.
    /// - A memory limit below what is used now is `Conflict`, and then none is changed.
    /// - None at all is `InvalidInput`.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let more = Resources::default().with_memory_bytes(1 << 30);
    /// sandbox.require_resources()?.set_resources(more, LimitDemand::BestEffort).await?;
    /// assert_eq!(sandbox.record().await?.limits["memory"].value, Some(1 << 30));
    /// # Ok(())
    /// # }
    /// ```
    async fn set_resources(&self, resources: Resources, demand: LimitDemand) -> Result<()>;
}
