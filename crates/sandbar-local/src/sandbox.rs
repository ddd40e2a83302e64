use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sandbar_core::{
    Archive, ByteStream, Commands, Deadline, DeadlineMode, ErrorKind, Files, Forking, Guest, GuestPath,
    ImportReport, MainProcess, Metrics, Network, Pausing, Ports, Processes, ResourceControl, Result, Sandbox,
    SandboxId, SandboxRecord, State, Watching,
};
use sandbar_guest::GuestClient;

use crate::ask::{ANSWER, misplaced};
use crate::client::{Link, Shared};
use crate::error::{fail, gone, not_running};
use crate::provider::Inner;
use crate::shim::protocol::{Op, Reply};
use crate::template::Base;

/// A handle on a local sandbox. Lazy: nothing is connected before the first call.
#[derive(Clone, Debug)]
pub struct LocalSandbox {
    link: Arc<Link>,
    shared: Arc<Shared>,
    agent: GuestClient,
}

impl LocalSandbox {
    /// As the import of archives, and into the root folder itself too.
    pub(crate) async fn import_anywhere(&self, path: &GuestPath, tar: ByteStream) -> Result<ImportReport> {
        self.agent.import_anywhere(path, tar).await
    }

    pub(crate) fn new(inner: Arc<Inner>, id: SandboxId) -> Self {
        let link = Arc::new(Link::new(inner, id));
        Self {
            shared: Arc::new(Shared(Arc::clone(&link))),
            agent: GuestClient::new(Arc::clone(&link) as _),
            link,
        }
    }

    fn local(&self) -> &Inner {
        self.link.inner()
    }
}

#[async_trait]
impl Sandbox for LocalSandbox {
    fn id(&self) -> &SandboxId {
        self.link.id()
    }

    async fn record(&self) -> Result<SandboxRecord> {
        let id = self.id();
        let seen = self.local().look(id, "describe")?.ok_or_else(|| gone("describe", id.as_str()))?;
        Ok(seen.public(Base::observe().ok().as_ref()))
    }

    fn commands(&self) -> &dyn Commands {
        &self.agent
    }

    fn files(&self) -> &dyn Files {
        &self.agent
    }

    async fn preview_url(&self, port: u16) -> Result<String> {
        let mapping = Ports::publish(&*self.link, port).await?;
        Ok(format!("http://{}:{}", mapping.host, mapping.port))
    }

    async fn set_deadline(&self, deadline: Deadline, mode: DeadlineMode) -> Result<Option<Timestamp>> {
        const OPERATION: &str = "set deadline";
        let deadline = match deadline {
            Deadline::At(at) => Some(at),
            Deadline::In(duration) => Some(Timestamp::now().checked_add(duration).map_err(|_| {
                fail(
                    ErrorKind::InvalidInput,
                    OPERATION,
                    format!("{} s from now is beyond the calendar", duration.as_secs()),
                )
            })?),
            Deadline::Never => None,
        };
        // In the precision that records have, and what is answered is what is in force.
        let deadline = deadline.map(|at| Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at));
        let op = || Op::SetDeadline { deadline, extend_only: mode == DeadlineMode::ExtendOnly };
        match self.link.ask_shim_of_any(op, ANSWER, OPERATION).await? {
            Reply::Deadline(deadline) => Ok(deadline),
            _ => Err(misplaced(OPERATION)),
        }
    }

    async fn wake(&self) -> Result<()> {
        let id = self.id();
        let seen = self.local().look(id, "wake")?.ok_or_else(|| gone("wake", id.as_str()))?;
        match seen.state() {
            State::Running => Ok(()),
            State::Sleeping => Pausing::resume(&*self.link).await.map(drop),
            state => Err(not_running("wake", id.as_str(), state, seen.record.reason.as_deref())),
        }
    }

    async fn destroy(&self) -> Result<bool> {
        self.local().destroy(self.id()).await
    }

    fn archive(&self) -> Option<&dyn Archive> {
        Some(&self.agent)
    }

    fn processes(&self) -> Option<&dyn Processes> {
        Some(&self.agent)
    }

    fn watching(&self) -> Option<&dyn Watching> {
        Some(&self.agent)
    }

    fn ports(&self) -> Option<&dyn Ports> {
        Some(&*self.link)
    }

    fn metrics(&self) -> Option<&dyn Metrics> {
        Some(&*self.link)
    }

    fn guest(&self) -> Option<&dyn Guest> {
        Some(&*self.link)
    }

    fn resources(&self) -> Option<&dyn ResourceControl> {
        Some(&*self.link)
    }

    fn pausing(&self) -> Option<&dyn Pausing> {
        Some(&*self.link)
    }

    fn forking(&self) -> Option<&dyn Forking> {
        Some(&*self.shared)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(&*self.shared)
    }

    fn main_command(&self) -> Option<&dyn MainProcess> {
        Some(&*self.shared)
    }
}
