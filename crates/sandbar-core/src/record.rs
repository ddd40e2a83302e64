use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    DeadlineAction, EgressPolicy, GuestPath, Isolation, KillCause, Labels, MainStatus, ProjectId, SandboxId,
    SandboxName, VolumeName,
};

/// What a backend knows of a sandbox. Reading it never wakes, extends or touches the sandbox.
#[derive(Clone, Debug, Serialize)]
pub struct SandboxRecord {
    /// Version of this form.
    pub version: u32,
    /// Its id.
    pub id: SandboxId,
    /// The name that the caller gave it.
    pub name: Option<SandboxName>,
    /// The caller's project.
    pub project: Option<ProjectId>,
    /// Observed, not remembered.
    pub state: State,
    /// What it booted from, by name; `None` where the backend does not tell.
    pub template: Option<String>,
    /// The caller's labels.
    pub labels: Labels,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// When it first ran; `None` is the wreckage of a creation.
    pub started_at: Option<Timestamp>,
    /// When it ends by itself.
    pub deadline: Option<Timestamp>,
    /// What happens then.
    pub on_deadline: DeadlineAction,
    /// The wall round it.
    pub isolation: IsolationReport,
    /// What it does without, since the machine or the platform lacks it; empty where there is nothing to tell.
    pub fallbacks: Vec<Fallback>,
    /// Limits by name: `memory` (bytes), `cpu` (thousandths of a core), `pids`, `disk` (bytes), and what else the backend has.
    pub limits: BTreeMap<String, Limit>,
    /// The last time a limit ended something.
    pub last_kill: Option<LastKill>,
    /// Published ports; empty when it is not running.
    pub ports: Vec<PortMapping>,
    /// What it may reach.
    pub egress: EgressSummary,
    /// Its main command, if it has one.
    pub main: Option<MainStatus>,
    /// Volumes attached to it.
    pub volumes: Vec<VolumeAttachment>,
    /// Why it is in this state, where that needs a word.
    pub reason: Option<String>,
}

impl SandboxRecord {
    /// The version of the form written today.
    pub const VERSION: u32 = 1;
}

/// The state of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// Being made.
    Creating,
    /// Running.
    Running,
    /// Suspended, with a way back to its live processes.
    Sleeping,
    /// Its processes are gone, its files are whole.
    Stopped,
    /// Being destroyed.
    Destroying,
}

impl State {
    /// The word used in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::Stopped => "stopped",
            Self::Destroying => "destroying",
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The wall round a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolationReport {
    /// Its tier.
    pub tier: Isolation,
    /// How user ids are mapped, where the tier maps them.
    pub ids: Option<IdMapping>,
}

/// How user ids inside map to the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdMapping {
    /// A range of host ids that no other sandbox has.
    Range,
    /// The caller's subordinate ids.
    Subordinate,
    /// One id, the caller's own.
    Single,
}

/// Something that a sandbox was made without. Nothing degrades silently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// What is lacking, by a name that stays the same.
    pub condition: String,
    /// What was found.
    pub observed: String,
    /// Which feature or wall is weaker or gone for it.
    pub cost: String,
}

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Its value; `None` is no limit.
    pub value: Option<u64>,
    /// What stands behind it on this host.
    pub state: LimitState,
    /// How often it was hit, where that is counted.
    pub hits: Option<u64>,
}

/// What stands behind a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitState {
    /// The kernel (or the platform) keeps it.
    Enforced,
    /// It is looked at from time to time, and acted upon.
    Watched,
    /// Nothing.
    None,
}

/// The last time a limit ended something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastKill {
    /// Which limit.
    pub cause: KillCause,
    /// When it was noticed.
    pub at: Timestamp,
    /// More, for a person.
    pub detail: String,
}

/// A published port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    /// The port inside.
    pub guest: u16,
    /// The address to dial.
    pub host: String,
    /// The port to dial there.
    pub port: u16,
}

/// What a sandbox may reach, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressSummary {
    /// The policy in force; `None` where the backend can't tell.
    pub policy: Option<EgressPolicy>,
    /// How the gateway is, through which all goes; absent where there is none to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayState>,
}

/// How the gateway of a sandbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayState {
    /// It serves.
    Serving,
    /// It does not, so the sandbox has no network.
    Down,
}

/// A volume attached to a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeAttachment {
    /// Which.
    pub name: VolumeName,
    /// Where.
    pub path: GuestPath,
}

/// What room there is for more sandboxes. Absent is not measurable, never 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Capacity {
    /// The backend's own verdict, if it has one.
    pub admits: Option<bool>,
    /// What was not measured, and why.
    pub detail: String,
    /// Free disk space in bytes.
    pub disk_bytes: Option<u64>,
    /// Free inodes.
    pub inodes: Option<u64>,
    /// Memory available without swapping, in bytes.
    pub memory_bytes: Option<u64>,
}
