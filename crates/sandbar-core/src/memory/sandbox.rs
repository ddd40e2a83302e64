use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::deadline::combine;
use super::fault::Fault;
use super::machine::Machine;
use super::world::{BACKEND, World};
use crate::{
    Commands, Deadline, DeadlineMode, Error, Files, Forking, MainProcess, Metrics, Pausing, Processes,
    ResourceControl, Result, Sandbox, SandboxId, SandboxRecord, Watching,
};

/// A handle on an emulated sandbox.
#[derive(Clone, Debug)]
pub(super) struct MemorySandbox {
    pub(super) world: Arc<World>,
    pub(super) id: SandboxId,
}

impl MemorySandbox {
    pub(super) fn new(world: Arc<World>, id: SandboxId) -> Self {
        Self { world, id }
    }

    /// The machine, whatever its state.
    pub(super) fn machine(&self, operation: &'static str) -> Result<Arc<Machine>> {
        self.world.require(&self.id, operation)
    }

    /// The machine, which has to run.
    pub(super) fn running(&self, operation: &'static str) -> Result<Arc<Machine>> {
        let machine = self.machine(operation)?;
        machine.check_running(operation)?;
        Ok(machine)
    }
}

#[async_trait]
impl Sandbox for MemorySandbox {
    fn id(&self) -> &SandboxId {
        &self.id
    }

    async fn record(&self) -> Result<SandboxRecord> {
        self.world.faults.check(Fault::Lookup, "record", &format!("sandbox `{}`", self.id))?;
        Ok(self.machine("record")?.record())
    }

    fn commands(&self) -> &dyn Commands {
        self
    }

    fn files(&self) -> &dyn Files {
        self
    }

    async fn preview_url(&self, port: u16) -> Result<String> {
        if port == 0 {
            return Err(Error::invalid("preview url", "port 0 is not valid: expected 1 to 65535"));
        }
        Err(Error::unsupported("preview url", "preview", "emulated programs have no network")
            .with_backend(BACKEND))
    }

    async fn set_deadline(&self, deadline: Deadline, mode: DeadlineMode) -> Result<Option<Timestamp>> {
        let machine = self.machine("set deadline")?;
        let deadline = combine(machine.deadline(), deadline, mode)?;
        machine.set_deadline(deadline);
        Ok(deadline)
    }

    async fn wake(&self) -> Result<()> {
        self.machine("wake")?.wake();
        Ok(())
    }

    async fn destroy(&self) -> Result<bool> {
        self.world.faults.check(Fault::Destroy, "destroy", &format!("sandbox `{}`", self.id))?;
        Ok(self.world.machine(&self.id).is_some() && self.world.destroy(&self.id))
    }

    fn processes(&self) -> Option<&dyn Processes> {
        Some(self)
    }

    fn watching(&self) -> Option<&dyn Watching> {
        Some(self)
    }

    fn metrics(&self) -> Option<&dyn Metrics> {
        Some(self)
    }

    fn pausing(&self) -> Option<&dyn Pausing> {
        Some(self)
    }

    fn forking(&self) -> Option<&dyn Forking> {
        Some(self)
    }

    fn resources(&self) -> Option<&dyn ResourceControl> {
        Some(self)
    }

    fn main_command(&self) -> Option<&dyn MainProcess> {
        Some(self)
    }

    fn missing_reason(&self, part: &str) -> Option<String> {
        let reason = match part {
            "ports" | "network" => "emulated programs have no network",
            "archive" => "the emulated disk neither writes nor reads tar",
            "guest" => "there is no agent in an emulated sandbox",
            _ => return None,
        };
        Some(reason.to_owned())
    }
}
