use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use sandbar_core::{
    DeadlineAction, EgressPolicy, EgressSummary, GuestPath, Isolation, IsolationReport, Labels, LastKill,
    Limit, MainStatus, PortMapping, ProjectId, SandboxId, SandboxName, SandboxRecord, State,
    VolumeAttachment,
};
use sandbar_engine::IdMode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::audit::AuditOrders;
use crate::doctor;
use crate::shim::protocol::VolumeOrder;
use crate::store::{Boot, LayerId};

/// The record as it stands on disk: what the last shim wrote. [`crate::observe`] corrects it by what it sees.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredRecord {
    pub(crate) version: u32,
    pub(crate) id: SandboxId,
    pub(crate) name: Option<SandboxName>,
    pub(crate) project: Option<ProjectId>,
    pub(crate) state: State,
    pub(crate) template: String,
    pub(crate) labels: Labels,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) on_deadline: DeadlineAction,
    pub(crate) isolation: IsolationReport,
    pub(crate) limits: BTreeMap<String, Limit>,
    pub(crate) last_kill: Option<LastKill>,
    pub(crate) ports: Vec<PortMapping>,
    /// Without a policy where that stands in a file of its own: rules may be many.
    pub(crate) egress: EgressSummary,
    pub(crate) reason: Option<String>,
    /// Its main command; absent in records of earlier versions.
    #[serde(default)]
    pub(crate) main: Option<MainStatus>,
    /// What only this backend needs.
    pub(crate) private: Private,
    /// Keys of a newer version, kept when this one rewrites the record.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// What only this backend needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Private {
    /// How ids are mapped.
    pub(crate) ids: IdMode,
    /// The number of its id range, where it has one.
    pub(crate) slot: Option<u32>,
    /// The first process inside, once it was started.
    pub(crate) agent: Option<AgentMark>,
    /// The shim that wrote this; absent in records of earlier versions.
    #[serde(default)]
    pub(crate) shim: Option<AgentMark>,
    /// Whom it belongs to, if it does not outlive its maker.
    pub(crate) owner: Option<Owner>,
    /// The digest of the host's programs that it was made over; empty where it does not lie over them.
    pub(crate) fingerprint: String,
    /// What it boots from; absent in records of earlier versions, where it is the `host` template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) boot: Option<Boot>,
    /// The volumes that it holds, from before it has them until it is gone; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) volumes: Vec<VolumeOrder>,
    /// Published ports whose address on the host was chosen: another one will not do. Absent in records of earlier versions.
    #[serde(default)]
    pub(crate) chosen_ports: Vec<u16>,
    /// Ids of the faults of this machine that it was made in spite of; absent in records of earlier versions.
    #[serde(default)]
    pub(crate) fallbacks: Vec<String>,
    /// Where to tell what happens with nobody looking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) audit: Option<AuditOrders>,
    /// How many bytes its main command had said before it was started again: the agent that runs it counts from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) main_base: u64,
    /// How much time its deadline gave it when that was set, in milliseconds; nothing where there is none, and in records of earlier versions. Where it sleeps at its deadline,
    /// it has as much again once it is woken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lifetime_ms: Option<u64>,
    /// How it was put to sleep, while it sleeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asleep: Option<Asleep>,
    /// What is being done with its layers, noted before; whoever finds it takes that back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pending: Option<Pending>,
    /// Keys of a newer version.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// What is being done with the layers of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pending {
    /// Its writable layers become a read-only one, which its record names once that is done; the agent that is to go on over it, once it was launched.
    Moving {
        layer: LayerId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<AgentMark>,
    },
    /// That was done, and the agent of before is to end.
    Ending(AgentMark),
    /// All its processes stand still while they are copied.
    Copying(Asleep),
}

impl Pending {
    /// The agent that is not the sandbox', and is to end.
    pub(crate) fn to_end(&self) -> Option<&AgentMark> {
        match self {
            Self::Moving { next, .. } => next.as_ref(),
            Self::Ending(agent) => Some(agent),
            Self::Copying(_) => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How a sandbox was put to sleep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asleep {
    /// By what.
    pub(crate) mechanism: String,
    /// Some of the processes that slept in, to tell afterwards whether they are the same.
    pub(crate) processes: Vec<AgentMark>,
    /// Processes that stood still before, and are to go on doing so; only where each got a signal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stopped: Vec<AgentMark>,
    /// Since when.
    pub(crate) at: Timestamp,
}

/// Names a process, most often the agent, so that a later one with its number is not taken for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentMark {
    /// Its number on the host.
    pub(crate) pid: i32,
    /// When it started, in clock ticks after boot.
    pub(crate) start_time: u64,
    /// The boot in which that was.
    pub(crate) boot: String,
}

/// Names the process that a sandbox belongs to.
pub(crate) type Owner = AgentMark;

impl AgentMark {
    /// Names a process of the present boot; `None` if it is gone.
    pub(crate) fn of(pid: rustix::process::Pid) -> io::Result<Option<Self>> {
        let start = sandbar_engine::proc_id::start_time(pid).map_err(io::Error::other)?;
        start.map(|start_time| Self::new(pid, start_time)).transpose()
    }

    /// Names a process of the present boot by its number and start.
    pub(crate) fn new(pid: rustix::process::Pid, start_time: u64) -> io::Result<Self> {
        Ok(Self { pid: pid.as_raw_nonzero().get(), start_time, boot: boot_id()?.to_owned() })
    }

    /// Whether the process still runs. What can't be found out is an error, and never "no".
    pub(crate) fn lives(&self) -> io::Result<bool> {
        match self.pid()? {
            Some(pid) => sandbar_engine::proc_id::alive(pid, self.start_time).map_err(io::Error::other),
            None => Ok(false),
        }
    }

    /// Its number, as long as it is of the present boot.
    pub(crate) fn pid(&self) -> io::Result<Option<rustix::process::Pid>> {
        let boot = boot_id()?;
        Ok(rustix::process::Pid::from_raw(self.pid).filter(|_| self.boot == boot))
    }
}

/// The id of the present boot, read once in the life of a process: it can't change, and a process that is out of descriptors must not forget what it
/// guards. Where a machine does not show it at all, numbers and start times alone have to do.
pub(crate) fn boot_id() -> io::Result<&'static str> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(id) = BOOT.get() {
        return Ok(id);
    }
    let id = match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(id) => id.trim().to_owned(),
        Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            String::new()
        }
        Err(cause) => return Err(cause),
    };
    Ok(BOOT.get_or_init(|| id))
}

/// The time, in the precision that records have: milliseconds.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

impl StoredRecord {
    /// The form of the contract, in the state observed.
    pub(crate) fn to_public(&self, state: State, reason: Option<String>) -> SandboxRecord {
        SandboxRecord {
            version: SandboxRecord::VERSION,
            id: self.id.clone(),
            name: self.name.clone(),
            project: self.project.clone(),
            state,
            template: Some(self.template.clone()),
            labels: self.labels.clone(),
            created_at: Some(self.created_at),
            started_at: self.started_at,
            deadline: self.deadline,
            on_deadline: self.on_deadline,
            isolation: self.isolation,
            fallbacks: self.private.fallbacks.iter().map(|id| doctor::named(id)).collect(),
            limits: self.limits.clone(),
            last_kill: self.last_kill.clone(),
            ports: if state == State::Running { self.ports.clone() } else { Vec::new() },
            egress: self.egress.clone(),
            main: self.main.clone(),
            volumes: self.private.volumes.iter().filter_map(attachment).collect(),
            reason,
        }
    }

    /// Its deadline once it is woken or started again at this time: where it sleeps at its deadline it has as much time as it was given, and never less than before. Where it is
    /// destroyed at it, a sleep is no reason for more time.
    pub(crate) fn deadline_from(&self, now: Timestamp) -> Option<Timestamp> {
        if self.on_deadline == DeadlineAction::Destroy {
            return self.deadline;
        }
        let fresh = self.private.lifetime_ms.and_then(|ms| now.checked_add(Duration::from_millis(ms)).ok());
        // What was met is no deadline any more.
        let left = self.deadline.filter(|deadline| *deadline > now);
        fresh.max(left)
    }

    /// Whether its time is over.
    pub(crate) fn is_expired(&self) -> bool {
        self.is_expired_for(Duration::ZERO)
    }

    /// Whether its time has been over for that long.
    pub(crate) fn is_expired_for(&self, grace: Duration) -> bool {
        self.deadline.is_some_and(|deadline| {
            deadline.checked_add(grace).is_ok_and(|latest| latest <= Timestamp::now())
        })
    }
}

/// A volume that it holds. The path was checked before it came into the record.
fn attachment(volume: &VolumeOrder) -> Option<VolumeAttachment> {
    let path = GuestPath::new(volume.target.clone()).ok()?;
    Some(VolumeAttachment { name: volume.name.clone(), path })
}

/// The wall of a sandbox with these ids.
pub(crate) fn isolation(ids: &IdMode) -> IsolationReport {
    use sandbar_core::IdMapping;
    let ids = match ids {
        IdMode::Range { .. } => IdMapping::Range,
        IdMode::Subordinate(_) => IdMapping::Subordinate,
        IdMode::Single => IdMapping::Single,
    };
    IsolationReport { tier: Isolation::Namespaces, ids: Some(ids) }
}

/// Egress of a sandbox that nothing leaves and that has no gateway.
pub(crate) const NO_EGRESS: EgressSummary =
    EgressSummary { policy: Some(EgressPolicy::DenyAll), gateway: None };

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn sample() -> StoredRecord {
        StoredRecord {
            version: 1,
            id: SandboxId::new("s1").unwrap(),
            name: None,
            project: None,
            state: State::Running,
            template: "host".into(),
            labels: Labels::new(),
            created_at: now(),
            started_at: None,
            deadline: None,
            on_deadline: DeadlineAction::Destroy,
            isolation: isolation(&IdMode::Single),
            limits: BTreeMap::new(),
            last_kill: None,
            ports: Vec::new(),
            egress: NO_EGRESS,
            reason: None,
            main: None,
            private: Private {
                ids: IdMode::Single,
                slot: None,
                agent: None,
                shim: None,
                owner: None,
                fingerprint: "f".into(),
                boot: None,
                volumes: Vec::new(),
                chosen_ports: Vec::new(),
                fallbacks: Vec::new(),
                audit: None,
                main_base: 0,
                lifetime_ms: None,
                asleep: None,
                pending: None,
                rest: Map::new(),
            },
            rest: Map::new(),
        }
    }

    #[test]
    fn keys_of_a_newer_version_survive_a_rewrite() {
        let mut value = serde_json::to_value(sample()).unwrap();
        value["colour"] = "blue".into();
        value["private"]["depth"] = 3.into();
        let record: StoredRecord = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(record).unwrap(), value);
    }

    #[test]
    fn a_process_is_named_for_good() {
        let me = AgentMark::of(rustix::process::getpid()).unwrap().unwrap();
        assert!(me.lives().unwrap());
        assert!(!AgentMark { start_time: me.start_time + 1, ..me.clone() }.lives().unwrap());
        assert!(!AgentMark { boot: "another".into(), ..me }.lives().unwrap());
    }

    #[test]
    fn ports_are_shown_only_while_it_runs() {
        let mut record = sample();
        record.ports.push(PortMapping { guest: 80, host: "127.0.0.1".into(), port: 1 });
        assert_eq!(record.to_public(State::Running, None).ports.len(), 1);
        assert!(record.to_public(State::Stopped, None).ports.is_empty());
    }
}
