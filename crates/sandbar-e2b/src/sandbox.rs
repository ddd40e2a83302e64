use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sandbar_core::{
    Archive, Commands, Deadline, DeadlineMode, Error, Files, Metrics, Network, Pausing, Processes, Result,
    Sandbox, SandboxId, SandboxRecord, Watching,
};

use crate::access::Access;
use crate::config::BACKEND;
use crate::error::{absent, unknown_state};
use crate::guest::{self, Guest};
use crate::lease::Leases;
use crate::record;

/// A handle on one sandbox. Holds no connection; a clone shares what is known of it.
#[derive(Clone)]
pub struct E2bSandbox {
    pub(crate) access: Access,
    pub(crate) leases: Leases,
    guest: Guest,
    given: Arc<Mutex<Given>>,
}

/// Time that this handle gave the sandbox, which E2B does not keep over a sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    pub(crate) lifetime: Option<Duration>,
    /// When it would have ended, as of the moment when it was put to sleep.
    pub(crate) end: Option<Timestamp>,
}

impl E2bSandbox {
    pub(crate) fn new(access: Access, leases: Leases) -> Self {
        Self { guest: guest::of(access.clone()), access, leases, given: Arc::default() }
    }

    pub(crate) fn remember_lifetime(&self, lifetime: Duration) {
        self.given(|given| given.lifetime = Some(lifetime));
    }

    pub(crate) fn given<T>(&self, look: impl FnOnce(&mut Given) -> T) -> T {
        look(&mut self.given.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Its record, as E2B says it, or that it is gone.
    pub(crate) async fn detail(&self, operation: &'static str) -> Result<sandbar_wire::e2b::SandboxDetail> {
        let id = self.access.id();
        let detail = self.access.api().detail(operation, id).await;
        let detail = detail.map_err(|error| unknown_state(operation, id, error))?;
        detail.ok_or_else(|| absent(operation, id))
    }

    /// A conflict with its state, where that is what it is with.
    pub(crate) async fn in_the_way(&self, operation: &'static str, error: Error) -> Error {
        match error.kind() {
            sandbar_core::ErrorKind::Conflict => self.access.trouble(operation, error).await,
            _ => error,
        }
    }

    /// What it means that there is none that runs: it is gone, or it sleeps.
    pub(crate) async fn not_running(&self, operation: &'static str) -> Error {
        let odd = Error::new(
            sandbar_core::ErrorKind::Protocol,
            operation,
            format!("E2B says that sandbox `{}` is not there, and that it runs", self.access.id()),
        );
        self.access.trouble(operation, odd.with_backend(BACKEND)).await
    }
}

#[async_trait]
impl Sandbox for E2bSandbox {
    fn id(&self) -> &SandboxId {
        self.access.id()
    }

    async fn record(&self) -> Result<SandboxRecord> {
        let detail = self.detail("record").await?;
        self.access.learn(&detail);
        let record = record::of_detail(self.access.api().config(), &detail);
        record.ok_or_else(|| absent("record", self.access.id()))
    }

    fn commands(&self) -> &dyn Commands {
        &self.guest
    }

    fn files(&self) -> &dyn Files {
        &self.guest
    }

    /// The port's own host name below E2B's domain; nothing is asked.
    async fn preview_url(&self, port: u16) -> Result<String> {
        if port == 0 {
            let error = Error::invalid("preview_url", "port 0 is not valid: expected 1 to 65535");
            return Err(error.with_backend(BACKEND));
        }
        Ok(self.access.api().endpoints().host(self.access.id(), port, self.access.domain().as_deref()))
    }

    async fn set_deadline(&self, deadline: Deadline, mode: DeadlineMode) -> Result<Option<Timestamp>> {
        self.change_deadline(deadline, mode).await
    }

    async fn wake(&self) -> Result<()> {
        self.wake_up("wake").await.map(drop)
    }

    async fn destroy(&self) -> Result<bool> {
        let id = self.access.id();
        self.leases.end(id);
        self.access.api().kill("destroy", id).await.map_err(|error| unknown_state("destroy", id, error))
    }

    fn processes(&self) -> Option<&dyn Processes> {
        Some(&self.guest)
    }

    fn watching(&self) -> Option<&dyn Watching> {
        Some(&self.guest)
    }

    fn metrics(&self) -> Option<&dyn Metrics> {
        Some(self)
    }

    fn pausing(&self) -> Option<&dyn Pausing> {
        Some(self)
    }

    fn archive(&self) -> Option<&dyn Archive> {
        Some(&self.guest)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(self)
    }

    fn missing_reason(&self, part: &str) -> Option<String> {
        let why = match part {
            "ports" => "ports of E2B are reached by HTTPS at addresses of their own; ask for a preview URL",
            "forking" => {
                "E2B's forks take names and labels along as they are; commit a template and create from it"
            }
            "resources" => "E2B's templates say what a sandbox gets, once and for all",
            "main_command" => "E2B starts what a template says, and does not tell of it",
            "guest" => "the guest is behind E2B's own proxy, which speaks HTTP and is no byte tunnel",
            _ => return None,
        };
        Some(why.to_owned())
    }
}

impl fmt::Debug for E2bSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("E2bSandbox").field(self.access.id()).finish()
    }
}
