use std::os::fd::OwnedFd;
use std::time::Duration;

use jiff::Timestamp;
use sandbar_core::{EgressSummary, Error, ErrorKind, GatewayState, Result, SandboxRecord, State};
use serde_json::Map;

use super::agent::{self, Configuration};
use super::egress;
use super::guard::{Guard, Occasion, Wish};
use super::listener::Listener;
use super::pipes::Pipes;
use super::prepare::{Gateway, Parts, Prepared, prepare, still_wanted};
use super::protocol::CreateOrders;
use super::shared::Shared;
use crate::error::{fail, io_error};
use crate::home::{AgentMark, Home, NO_EGRESS, Private, StoredRecord, isolation, now};
use crate::store::{Hold, StoreLock};
use crate::teardown::{self, Ending, Groups, Layers};

/// Makes the sandbox up to its configured agent, of what was prepared where that fits. A failure leaves nothing, or its error names what is left.
pub(super) fn create(
    home: Home,
    orders: &CreateOrders,
    pipes: &Pipes,
    prepared: Option<Prepared>,
) -> Result<Guard> {
    // Before anything is made: an address that can't be had is known now, and is kept from now on.
    let listeners =
        orders.ports.iter().map(|port| Listener::bind("create", (*port).into())).collect::<Result<_>>()?;
    // What it boots from and what it holds stays until its record says that it does.
    let _store = if orders.boot.layers.is_empty() && orders.volumes.is_empty() {
        None
    } else {
        let lock = StoreLock::take(&home, Hold::Shared, "create")?;
        orders.boot.check(&home)?;
        Some(lock)
    };
    let shape = orders.shape();
    let gateway = if orders.egress.is_some() { Gateway::Required } else { Gateway::IfPossible };
    let prepared = match prepared.filter(|prepared| prepared.fits(&home, &shape, gateway)) {
        Some(prepared) => prepared,
        None => prepare(home, shape, pipes, gateway)?,
    };
    let mut parts = prepared
        .into_parts()
        .ok_or_else(|| fail(ErrorKind::Unexpected, "create", "what was prepared is gone"))?;
    let record = match new_record(&parts, orders) {
        Ok(record) => record,
        Err(error) => return Err(undo(&parts, error, None)),
    };
    let config = parts.config.take();
    let making = Making { parts: &parts, record: &record };
    let configuration = match making.make(orders, config, pipes) {
        Ok(configuration) => configuration,
        Err(error) => return Err(undo(&parts, error, Some(record))),
    };
    let Parts { home, folder, lock, cgroup, agent, log, .. } = parts;
    let mut shared = Shared::new(home, folder, lock, record, cgroup, agent.pidfd);
    if super::kept::keeps_to_itself(orders) {
        shared.untouched_layers = Layers::Kept;
    }
    let wish = Wish {
        ports: listeners,
        lifetime_ms: orders.lifetime_ms,
        network: agent.network,
        configuration: Some(configuration),
        ready: orders.ready.clone(),
    };
    Ok(Guard::of_new(shared, wish, log, Occasion::Creation))
}

/// A sandbox in the making.
struct Making<'a> {
    parts: &'a Parts,
    record: &'a StoredRecord,
}

impl Making<'_> {
    /// The record comes before the agent is configured: whatever runs and is more than a wait for that has a record.
    fn make(&self, orders: &CreateOrders, config: Option<OwnedFd>, pipes: &Pipes) -> Result<Configuration> {
        let Parts { folder, ids, host, .. } = self.parts;
        let deadline = deadline(orders.lifetime_ms, now())?;
        let authority = egress::make_authority(folder, orders.egress.as_ref())?;
        let text = agent::config(folder.id(), orders, deadline, ids, host, authority.as_ref())?;
        // Before the record that points to it.
        if let Some(policy) = &orders.egress {
            folder.keep_policy(policy).map_err(|cause| io_error("create", "`egress.json`", cause))?;
        }
        super::kept::keep(folder, orders).map_err(|cause| io_error("create", "`orders.json`", cause))?;
        self.save()?;
        self.claim_name(orders)?;
        still_wanted(pipes)?;
        let pipe =
            config.ok_or_else(|| fail(ErrorKind::Unexpected, "create", "the agent is configured already"))?;
        Ok(Configuration::new(pipe, text))
    }

    fn claim_name(&self, orders: &CreateOrders) -> Result<()> {
        let Some(name) = &orders.name else { return Ok(()) };
        let holder = self
            .parts
            .home
            .claim_name(name, self.parts.folder.id())
            .map_err(|cause| io_error("create", &format!("name `{name}`"), cause))?;
        match holder {
            None => Ok(()),
            Some(holder) => Err(fail(
                ErrorKind::AlreadyExists,
                "create",
                format!("the name `{name}` is taken by sandbox `{holder}`"),
            )
            .with_resource(format!("sandbox name `{name}`"))
            .with_hint("choose another name, or destroy that sandbox")),
        }
    }

    fn save(&self) -> Result<()> {
        let Parts { home, folder, .. } = self.parts;
        folder.write_record(self.record).map_err(|cause| {
            io_error("create", &format!("`{}/record.json`", home.folder_path(folder.id()).display()), cause)
        })
    }
}

/// Takes back what was done; what does not go is added to the error.
fn undo(parts: &Parts, error: Error, record: Option<StoredRecord>) -> Error {
    let mark = AgentMark::new(parts.agent.pid, parts.agent.start_time);
    let ended = mark.and_then(|mark| teardown::end_agent(&mark));
    let ended = ended.map_err(|cause| io_error("create", "the agent", cause));
    let groups = Groups::Known(parts.cgroup.as_ref());
    match ended.and_then(|()| {
        teardown::tear_down(&parts.home, &parts.folder, record, &parts.lock, groups, Ending::default())
    }) {
        Ok(()) => error,
        Err(left) => left.left_behind().iter().cloned().fold(error, Error::with_left_behind),
    }
}

fn new_record(parts: &Parts, orders: &CreateOrders) -> Result<StoredRecord> {
    let agent = AgentMark::new(parts.agent.pid, parts.agent.start_time)
        .map_err(|cause| io_error("create", "the machine's boot", cause))?;
    Ok(StoredRecord {
        version: SandboxRecord::VERSION,
        id: parts.folder.id().clone(),
        name: orders.name.clone(),
        project: orders.project.clone(),
        state: State::Creating,
        template: orders.boot.template.as_str().to_owned(),
        labels: orders.labels.clone(),
        created_at: now(),
        started_at: None,
        deadline: None,
        on_deadline: orders.on_deadline,
        isolation: isolation(&parts.ids),
        limits: parts.limits.clone(),
        last_kill: None,
        ports: Vec::new(),
        egress: summary(parts, orders),
        reason: None,
        main: orders.main.as_ref().map(super::main_command::unstarted),
        private: Private {
            ids: parts.ids.clone(),
            slot: parts.slot,
            agent: Some(agent),
            shim: own_mark()?,
            owner: orders.owner.clone(),
            fingerprint: if orders.boot.on_host { parts.base.fingerprint.clone() } else { String::new() },
            boot: Some(orders.boot.clone()),
            volumes: orders.volumes.clone(),
            chosen_ports: Vec::new(),
            fallbacks: parts.fallbacks.clone(),
            audit: orders.audit.clone(),
            main_base: 0,
            lifetime_ms: orders.renewal_ms.or(orders.lifetime_ms),
            asleep: None,
            pending: None,
            rest: Map::new(),
        },
        rest: Map::new(),
    })
}

/// The policy stands in its own file, where there is one. The gateway does not serve before the sandbox runs.
pub(super) fn summary(parts: &Parts, orders: &CreateOrders) -> EgressSummary {
    let gateway = parts.agent.network.is_some().then_some(GatewayState::Down);
    let policy = if orders.egress.is_some() { None } else { NO_EGRESS.policy };
    EgressSummary { policy, gateway }
}

/// The end of a lifetime that begins now.
pub(super) fn deadline(lifetime_ms: Option<u64>, now: Timestamp) -> Result<Option<Timestamp>> {
    let Some(lifetime) = lifetime_ms else { return Ok(None) };
    now.checked_add(Duration::from_millis(lifetime)).map(Some).map_err(|_| {
        fail(
            ErrorKind::InvalidInput,
            "create",
            format!("a deadline {lifetime} ms from now is beyond the calendar"),
        )
    })
}

/// This process, for those who have to end it should it not do that itself.
pub(super) fn own_mark() -> Result<Option<AgentMark>> {
    AgentMark::of(rustix::process::getpid()).map_err(|cause| io_error("create", "this process", cause))
}
