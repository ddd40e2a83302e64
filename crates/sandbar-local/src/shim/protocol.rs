//! What a shim is told: at its start through its standard input, later through `shim.sock`, in lines of JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use sandbar_core::{
    DeadlineAction, Destination, EgressCounters, EnvVars, Explanation, HibernationOutcome, HostMount,
    KillCause, Labels, LastKill, LimitDemand, MainStatus, MountAccess, PortMapping, PortPublication,
    ProjectId, Protocol, Resources, RestartPolicy, SandboxId, SandboxName, UserName, VolumeMount, VolumeName,
};
use serde::{Deserialize, Serialize};

use crate::audit::AuditOrders;
use crate::error::ErrorForm;
use crate::home::{Owner, SealedPolicy};
use crate::store::{Boot, LayerId, Merged};

/// The newest version of the protocol. Version 2 has main commands, limits that change, and an audit record; version 3 has egress policies,
/// version 4 has templates, volumes, starts of stopped sandboxes, and forks.
pub(crate) const VERSION: u32 = 4;
/// The oldest version that this one understands. What is sent carries the oldest version that has it, so that a shim or an executable of before goes on
/// with what it knows, and refuses the rest instead of passing it over.
pub(crate) const OLDEST: u32 = 1;
/// Longest line in either direction, in bytes: an environment and labels at their limits fit, with a policy at its.
pub(crate) const MAX_LINE: usize = 16 << 20;

/// The first line to a new shim.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) v: u32,
    /// Version of the caller's library, for messages.
    pub(crate) library: String,
    pub(crate) home: PathBuf,
    pub(crate) task: Task,
}

/// What a new shim is for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    /// Make a sandbox.
    Create(Box<CreateOrders>),
    /// Make ready what a sandbox of this shape needs, and wait for the orders to create one: they are another line of the same pipe. Where that
    /// closes instead, nothing stays.
    Prepare(Box<Shape>),
    /// Take over a sandbox whose shim is gone.
    Adopt(SandboxId),
    /// Start a sandbox again whose processes are gone.
    Start(SandboxId),
}

/// What of a creation decides how the kernel's part of a sandbox is made. Nothing in it is anybody's secret or name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// What it boots from; absent in orders of earlier versions, where it is the `host` template.
    #[serde(default = "Boot::host")]
    pub(crate) boot: Boot,
    pub(crate) mounts: Vec<MountOrder>,
    /// Absent in orders of earlier versions, where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) volumes: Vec<VolumeOrder>,
    pub(crate) limits: LimitOrders,
    /// Whether it ends with its maker.
    pub(crate) owned: bool,
}

/// What to make. Everything is decided: the shim adds no default.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CreateOrders {
    /// What it boots from; absent in orders of earlier versions, where it is the `host` template.
    #[serde(default = "Boot::host")]
    pub(crate) boot: Boot,
    pub(crate) name: Option<SandboxName>,
    pub(crate) project: Option<ProjectId>,
    pub(crate) env: EnvVars,
    pub(crate) labels: Labels,
    pub(crate) ports: Vec<PortOrder>,
    pub(crate) mounts: Vec<MountOrder>,
    /// Absent in orders of earlier versions, where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) volumes: Vec<VolumeOrder>,
    pub(crate) limits: LimitOrders,
    /// Lifetime in milliseconds.
    pub(crate) lifetime_ms: Option<u64>,
    /// How much time it has again after a sleep at its deadline, in milliseconds, where that is not its lifetime: a copy's is what is left of its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) renewal_ms: Option<u64>,
    /// What happens at its end; absent in orders of earlier versions.
    #[serde(default, skip_serializing_if = "is_destroy")]
    pub(crate) on_deadline: DeadlineAction,
    /// Whom it belongs to, if it does not outlive its maker.
    pub(crate) owner: Option<Owner>,
    /// What it may reach; nothing if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) egress: Option<SealedPolicy>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) main: Option<MainOrder>,
    /// What has to succeed inside before it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<ReadyOrder>,
    /// Where to tell what happens with nobody looking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) audit: Option<AuditOrders>,
}

/// A main command.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct MainOrder {
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    pub(crate) env: EnvVars,
    pub(crate) cwd: Option<String>,
    pub(crate) user: Option<UserName>,
    pub(crate) restart: RestartPolicy,
}

/// A command that succeeds once a sandbox is ready.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ReadyOrder {
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// How long to wait for it, in milliseconds.
    pub(crate) within_ms: u64,
}

impl std::fmt::Debug for ReadyOrder {
    /// Without arguments.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadyOrder").field("program", &self.argv.first()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for MainOrder {
    /// Without arguments and environment.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MainOrder").field("program", &self.argv.first()).finish_non_exhaustive()
    }
}

/// What earlier versions did at every deadline.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_destroy(action: &DeadlineAction) -> bool {
    *action == DeadlineAction::Destroy
}

impl Task {
    /// The oldest version of the protocol that has all of it.
    pub(crate) fn version(&self) -> u32 {
        match self {
            Self::Create(orders) if orders.boot != Boot::host() || !orders.volumes.is_empty() => 4,
            Self::Prepare(shape) if shape.boot != Boot::host() || !shape.volumes.is_empty() => 4,
            Self::Start(_) => 4,
            Self::Create(orders) if orders.egress.is_some() || !is_destroy(&orders.on_deadline) => 3,
            Self::Create(orders) if orders.main.is_some() || orders.audit.is_some() => 2,
            Self::Prepare(_) => 2,
            Self::Create(_) | Self::Adopt(_) => 1,
        }
    }
}

/// A port to publish. One that may be anywhere is its number alone, as earlier versions have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum PortOrder {
    /// At any free port of the host's loopback.
    Anywhere(u16),
    /// At a place that was chosen.
    At(PortPublication),
}

impl From<PortPublication> for PortOrder {
    fn from(port: PortPublication) -> Self {
        match port {
            PortPublication { guest, address: None, port: None } => Self::Anywhere(guest),
            chosen => Self::At(chosen),
        }
    }
}

impl From<PortOrder> for PortPublication {
    fn from(order: PortOrder) -> Self {
        match order {
            PortOrder::Anywhere(guest) => Self::new(guest),
            PortOrder::At(chosen) => chosen,
        }
    }
}

impl CreateOrders {
    /// What has to be known before anything else of it is.
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            boot: self.boot.clone(),
            mounts: self.mounts.clone(),
            volumes: self.volumes.clone(),
            limits: self.limits.clone(),
            owned: self.owner.is_some(),
        }
    }
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountOrder {
    pub(crate) source: PathBuf,
    /// The guest path's bytes: it need not be text.
    pub(crate) target: Vec<u8>,
    pub(crate) access: MountAccess,
}

impl From<HostMount> for MountOrder {
    fn from(mount: HostMount) -> Self {
        Self { source: mount.source, target: mount.target.as_bytes().to_vec(), access: mount.access }
    }
}

/// A volume and where it appears; in the record as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VolumeOrder {
    pub(crate) name: VolumeName,
    /// The guest path's bytes: it need not be text.
    pub(crate) target: Vec<u8>,
    pub(crate) access: MountAccess,
}

impl From<VolumeMount> for VolumeOrder {
    fn from(mount: VolumeMount) -> Self {
        let VolumeMount { volume, path } = mount;
        Self { name: volume, target: path.as_bytes().to_vec(), access: MountAccess::ReadWrite }
    }
}

/// Limits with the names of those that the caller insists on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitOrders {
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) cpu_millis: Option<u32>,
    pub(crate) pids: Option<u32>,
    pub(crate) disk_bytes: Option<u64>,
    /// Limits that have to be enforced, by name.
    pub(crate) demanded: Vec<String>,
}

impl LimitOrders {
    /// What was asked for, over the defaults.
    pub(crate) fn new(asked: Resources, demand: LimitDemand, defaults: &crate::config::Defaults) -> Self {
        let Resources { memory_bytes, cpu_millis, pids, disk_bytes } = asked;
        let named = [
            ("memory", memory_bytes.is_some()),
            ("cpu", cpu_millis.is_some()),
            ("pids", pids.is_some()),
            ("disk", disk_bytes.is_some()),
        ];
        Self {
            memory_bytes: memory_bytes.or(defaults.memory_bytes),
            cpu_millis: cpu_millis.or(defaults.cpu_millis),
            pids: pids.or(defaults.pids),
            disk_bytes: disk_bytes.or(defaults.disk_bytes),
            demanded: match demand {
                LimitDemand::BestEffort => Vec::new(),
                // A sandbox without these two can take the machine down, named or not.
                LimitDemand::Enforced => named
                    .iter()
                    .filter(|(name, given)| *given || matches!(*name, "memory" | "pids"))
                    .map(|(name, _)| (*name).to_owned())
                    .collect(),
            },
        }
    }

    /// A change: what was asked for, and no defaults.
    pub(crate) fn change(asked: Resources, demand: LimitDemand) -> Self {
        let Resources { memory_bytes, cpu_millis, pids, disk_bytes } = asked;
        let named = [
            ("memory", memory_bytes.is_some()),
            ("cpu", cpu_millis.is_some()),
            ("pids", pids.is_some()),
            ("disk", disk_bytes.is_some()),
        ];
        let demanded = named.iter().filter(|(_, given)| *given && demand == LimitDemand::Enforced);
        Self {
            memory_bytes,
            cpu_millis,
            pids,
            disk_bytes,
            demanded: demanded.map(|(name, _)| (*name).to_owned()).collect(),
        }
    }

    /// For the engine.
    pub(crate) fn to_engine(&self) -> sandbar_engine::Limits {
        sandbar_engine::Limits {
            memory_bytes: self.memory_bytes,
            cpus_milli: self.cpu_millis,
            pids: self.pids,
            disk_bytes: self.disk_bytes,
            ..sandbar_engine::Limits::default()
        }
    }
}

/// The one line from a new shim.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The sandbox runs and the shim serves it.
    Ready {
        /// Version of the shim's executable.
        version: String,
        id: SandboxId,
    },
    /// Another shim guards it already.
    Guarded,
    /// It did not work, and what could be undone is undone.
    Failed(ErrorForm),
}

/// A line to `shim.sock`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) v: u32,
    #[serde(flatten)]
    pub(crate) op: Op,
}

/// What a shim can be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Op {
    /// Whether it is there.
    Hello,
    /// End the sandbox.
    Destroy,
    /// Another deadline.
    SetDeadline { deadline: Option<Timestamp>, extend_only: bool },
    /// What it uses, and what limits did.
    Stats,
    /// Make a port reachable.
    Publish { port: u16 },
    /// Make a port reachable at a place that was chosen.
    PublishAt { at: PortPublication },
    /// Take back what was published.
    Unpublish { port: u16 },
    /// A connection to a port; after the answer, this connection is that one.
    Dial { port: u16 },
    /// How the main command is, once all that it said so far is in its log.
    Main,
    /// Other limits; those that are absent stay as they are.
    SetResources { limits: LimitOrders },
    /// Another egress policy, at once.
    SetPolicy { policy: SealedPolicy },
    /// What the gateway counted, once all that it decided so far is in its log.
    Egress,
    /// Put it to sleep.
    Hibernate,
    /// Wake it.
    Resume,
    /// Another thing to happen at the deadline.
    SetDeadlineAction { action: DeadlineAction },
    /// Make a read-only layer of what it has written so far, for a copy of it; and what may take the place of layers that it has.
    Snapshot {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        merged: Option<Merged>,
    },
    /// Hold it still, for whoever reads its files from outside; a line lets it go, and so does the end of the connection.
    Hold,
    /// What the gateway would decide.
    Explain { destination: Destination, port: u16, protocol: Protocol },
}

impl Op {
    /// The oldest version of the protocol that has it.
    pub(crate) fn version(&self) -> u32 {
        match self {
            Self::Hello
            | Self::Destroy
            | Self::SetDeadline { .. }
            | Self::Stats
            | Self::Publish { .. }
            | Self::Dial { .. } => 1,
            Self::PublishAt { .. } | Self::Unpublish { .. } | Self::Main | Self::SetResources { .. } => 2,
            Self::SetPolicy { .. }
            | Self::Egress
            | Self::Explain { .. }
            | Self::Hibernate
            | Self::Resume
            | Self::SetDeadlineAction { .. } => 3,
            Self::Snapshot { .. } | Self::Hold => 4,
        }
    }
}

/// A line from `shim.sock`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// To [`Op::Hello`]: version of the executable.
    Hello { version: String },
    /// To [`Op::Destroy`].
    Destroyed,
    /// To [`Op::SetDeadline`]: the one in force.
    Deadline(Option<Timestamp>),
    /// To [`Op::Stats`].
    Stats(Usage),
    /// To [`Op::Publish`] and [`Op::PublishAt`].
    Published(PortMapping),
    /// To [`Op::Unpublish`].
    Unpublished { was_published: bool },
    /// To [`Op::Dial`].
    Dialled,
    /// To [`Op::SetResources`].
    Resized,
    /// To [`Op::Main`].
    Main(Option<MainStatus>),
    /// To [`Op::Hibernate`] and [`Op::Resume`].
    Slept(Slept),
    /// To [`Op::SetDeadlineAction`].
    ActionSet,
    /// To [`Op::Hold`]: it stands still.
    Held,
    /// To the line that lets it go: until now it stood still.
    LetGo,
    /// To [`Op::SetPolicy`].
    PolicySet,
    /// To [`Op::Egress`].
    Egress(EgressCounters),
    /// To [`Op::Explain`].
    Explained(Explanation),
    /// To [`Op::Snapshot`].
    Snapshot(Snapped),
    /// Nothing listens on that port.
    Refused,
    /// The protocol's version is not known; these are.
    Versions(Vec<u32>),
    /// It did not work.
    Failed(ErrorForm),
}

/// A moment of a sandbox' files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Snapped {
    /// What a copy boots from, the topmost first.
    pub(crate) layers: Vec<LayerId>,
    pub(crate) mechanism: String,
    pub(crate) copied_bytes: u64,
}

/// What a sleep or its end did.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Slept {
    pub(crate) processes_preserved: bool,
    pub(crate) mechanism: String,
    pub(crate) detail: Option<String>,
}

impl Slept {
    /// Nothing had to be done.
    pub(crate) fn already(detail: &str, mechanism: &str) -> Self {
        Self { processes_preserved: true, mechanism: mechanism.to_owned(), detail: Some(detail.to_owned()) }
    }
}

impl From<Slept> for HibernationOutcome {
    fn from(slept: Slept) -> Self {
        let Slept { processes_preserved, mechanism, detail } = slept;
        Self { processes_preserved, mechanism, detail }
    }
}

/// What a sandbox uses. Absent is not measurable.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) memory_peak_bytes: Option<u64>,
    pub(crate) cpu_usec: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) disk_bytes: Option<u64>,
    pub(crate) last_kill: Option<LastKill>,
    /// How often each cause ended something, by name.
    pub(crate) kills: BTreeMap<String, u64>,
}

/// The word for a cause; also the name of its limit in a record, where it has one.
pub(crate) fn cause_name(cause: KillCause) -> &'static str {
    match cause {
        KillCause::Oom => "oom",
        KillCause::Pids => "pids",
        KillCause::Disk => "disk",
        _ => "timeout",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_carry_the_version_beside_the_operation() {
        let text = serde_json::to_string(&Request { v: 1, op: Op::Dial { port: 80 } }).unwrap();
        assert_eq!(text, r#"{"v":1,"op":"dial","port":80}"#);
        let hello: Request = serde_json::from_str(r#"{"v":9,"op":"hello","more":1}"#).unwrap();
        assert_eq!(hello.v, 9);
    }

    #[test]
    fn orders_that_an_older_shim_would_pass_over_are_of_a_newer_version() {
        let options = || sandbar_core::CreateOptions::new().with_limit_demand(LimitDemand::BestEffort);
        let plain = || {
            let home = std::path::Path::new("/nonexistent");
            crate::options::resolve(options(), home, &crate::config::Defaults::default()).unwrap()
        };
        let version = |orders: CreateOrders| Task::Create(Box::new(orders)).version();
        let shape = plain().shape();
        assert_eq!(version(plain()), 1);
        let told = AuditOrders::of_task(sandbar_observe::AuditConfig::new("/var/log/audit.jsonl"));
        let told = CreateOrders { audit: Some(told), ..plain() };
        // Nor does it matter to what is prepared.
        assert_eq!(told.shape(), shape);
        assert_eq!(version(told), 2);
    }

    #[test]
    fn a_port_that_may_be_anywhere_is_a_number() {
        let text = |port: PortPublication| serde_json::to_string(&PortOrder::from(port)).unwrap();
        assert_eq!(text(PortPublication::new(80)), "80");
        let chosen = PortPublication::new(80).with_port(8080);
        assert_eq!(text(chosen), r#"{"guest":80,"address":null,"port":8080}"#);
        assert_eq!(serde_json::from_str::<PortOrder>(&text(chosen)).unwrap(), PortOrder::At(chosen));
    }

    #[test]
    fn named_limits_memory_and_pids_are_demanded() {
        let asked = Resources::default().with_pids(5);
        let limits = LimitOrders::new(asked, LimitDemand::Enforced, &crate::config::Defaults::default());
        assert_eq!(limits.demanded, ["memory", "pids"]);
        assert_eq!((limits.pids, limits.memory_bytes), (Some(5), Some(crate::config::DEFAULT_MEMORY)));
    }
}
