use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    Archive, Commands, Deadline, DeadlineMode, Files, Forking, Guest, Metrics, Network, Pausing, Ports,
    Processes, ResourceControl, Result, SandboxId, SandboxRecord, Watching,
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
    async fn record(&self) -> Result<SandboxRecord>;

    /// Running commands.
    fn commands(&self) -> &dyn Commands;

    /// Reading and writing files.
    fn files(&self) -> &dyn Files;

    /// An address at which `port` inside can be reached from where the caller is.
    async fn preview_url(&self, port: u16) -> Result<String>;

    /// Changes when it ends by itself and answers the deadline now in force.
    async fn set_deadline(&self, deadline: Deadline, mode: DeadlineMode) -> Result<Option<Timestamp>>;

    /// Wakes it if it sleeps; does nothing if it runs.
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
