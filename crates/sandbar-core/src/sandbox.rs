use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    Archive, Commands, Deadline, DeadlineMode, Files, Forking, Guest, MainProcess, Metrics, Network, Pausing,
    Ports, Processes, ResourceControl, Result, SandboxId, SandboxRecord, Watching,
};

/// A handle on one sandbox. Cheap; holds no connection that keeps the sandbox awake.
///
/// Calls on a sleeping sandbox answer [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) with the state and the way out; calls on one that is
/// positively gone answer [`ErrorKind::NotFound`](crate::ErrorKind::NotFound).
#[async_trait]
pub trait Sandbox: Send + Sync + fmt::Debug {
    /// Its id.
    fn id(&self) -> &SandboxId;

    /// Its record, observed now. Touches nothing. A sandbox that is positively gone is `NotFound`.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// assert_eq!(sandbox.record().await?.state, State::Running);
    /// sandbox.destroy().await?;
    /// assert_eq!(sandbox.record().await.unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    async fn record(&self) -> Result<SandboxRecord>;

    /// Running commands.
    fn commands(&self) -> &dyn Commands;

    /// Reading and writing files.
    fn files(&self) -> &dyn Files;

    /// An address at which `port` inside can be reached from where the caller is.
    async fn preview_url(&self, port: u16) -> Result<String>;

    /// Changes when it ends by itself and answers the deadline now in force.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let minute = Deadline::In(std::time::Duration::from_secs(60));
    /// let deadline = sandbox.set_deadline(minute, DeadlineMode::Set).await?;
    /// assert_eq!(sandbox.record().await?.deadline, deadline);
    ///
    /// let second = Deadline::In(std::time::Duration::from_secs(1));
    /// assert_eq!(sandbox.set_deadline(second, DeadlineMode::ExtendOnly).await?, deadline);
    /// # Ok(())
    /// # }
    /// ```
    async fn set_deadline(&self, deadline: Deadline, mode: DeadlineMode) -> Result<Option<Timestamp>>;

    /// Wakes it if it sleeps; does nothing if it runs.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// sandbox.require_pausing()?.hibernate().await?;
    /// let error = sandbox.commands().run(&Command::new("true")).await.unwrap_err();
    /// assert_eq!(error.state(), Some(State::Sleeping));
    ///
    /// sandbox.wake().await?;
    /// assert!(sandbox.commands().run(&Command::new("true")).await?.status.is_success());
    /// # Ok(())
    /// # }
    /// ```
    async fn wake(&self) -> Result<()>;

    /// As [`SandboxProvider::destroy`](crate::SandboxProvider::destroy).
    async fn destroy(&self) -> Result<bool>;

    /// Long-running processes, standard input, signals, terminals.
    fn processes(&self) -> Option<&dyn Processes> {
        None
    }

    /// Changes of files as they happen.
    fn watching(&self) -> Option<&dyn Watching> {
        None
    }

    /// Ports inside, from outside.
    fn ports(&self) -> Option<&dyn Ports> {
        None
    }

    /// What it uses.
    fn metrics(&self) -> Option<&dyn Metrics> {
        None
    }

    /// Hibernate and resume.
    fn pausing(&self) -> Option<&dyn Pausing> {
        None
    }

    /// Copies of a running sandbox.
    fn forking(&self) -> Option<&dyn Forking> {
        None
    }

    /// Trees of files in and out.
    fn archive(&self) -> Option<&dyn Archive> {
        None
    }

    /// Changing limits.
    fn resources(&self) -> Option<&dyn ResourceControl> {
        None
    }

    /// The command that it is for, and what that said.
    fn main_command(&self) -> Option<&dyn MainProcess> {
        None
    }

    /// Changing the egress policy.
    fn network(&self) -> Option<&dyn Network> {
        None
    }

    /// A byte tunnel to the guest's own API.
    fn guest(&self) -> Option<&dyn Guest> {
        None
    }

    /// Why the part of this name is `None`, for people. `None` if the part is there or nobody knows.
    fn missing_reason(&self, part: &str) -> Option<String> {
        let _ = part;
        None
    }
}
