use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    Capacity, Decision, Destination, EgressCounters, EgressPolicy, Explanation, Follow, Protocol, Result,
};

/// What a sandbox uses.
#[async_trait]
pub trait Metrics: Send + Sync {
    /// What it uses now.
    async fn sample(&self) -> Result<MetricsSample>;
}

/// What a sandbox uses at one moment. Absent is not measurable, never 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricsSample {
    /// When.
    pub at: Timestamp,
    /// Processor seconds used since it started.
    pub cpu_seconds: Option<f64>,
    /// Cores it may use.
    pub cpu_count: Option<f64>,
    /// Bytes of memory used now.
    pub memory_bytes: Option<u64>,
    /// Most bytes of memory ever used.
    pub memory_peak_bytes: Option<u64>,
    /// Bytes of memory it may use.
    pub memory_limit_bytes: Option<u64>,
    /// Bytes of disk it has written.
    pub disk_bytes: Option<u64>,
    /// Processes and threads now.
    pub processes: Option<u64>,
}

/// Decisions of the gateway, oldest first.
pub type Decisions = BoxStream<'static, Result<Decision>>;

/// The egress policy while the sandbox runs, and what came of it.
#[async_trait]
pub trait Network: Send + Sync {
    /// The policy in force. Values of injected headers are not in it.
    async fn policy(&self) -> Result<EgressPolicy>;

    /// Puts another policy in force, at once; flows that it no longer allows are cut before this answers.
    async fn set_policy(&self, policy: EgressPolicy) -> Result<()>;

    /// What was counted since the sandbox started.
    async fn counters(&self) -> Result<EgressCounters>;

    /// What was decided, as far as it is kept: the newest ones, within bounds.
    async fn decisions(&self, options: DecisionOptions) -> Result<Decisions>;

    /// What would be decided about a connection, and why. Nothing is connected or resolved.
    async fn explain(&self, destination: Destination, port: u16, protocol: Protocol) -> Result<Explanation>;
}

/// Which decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionOptions {
    /// Only so many of the newest ones that are there; all by default.
    pub tail: Option<usize>,
    /// Only those from then on.
    pub since: Option<Timestamp>,
    /// Whether to go on with those that come.
    pub follow: Follow,
}

/// Observing what sandboxes can reach.
#[async_trait]
pub trait EgressCheck: Send + Sync {
    /// Observes, in a sandbox made the ordinary way under the policy, what can be reached. Settings count for nothing: a verdict says what was
    /// tried. The sandbox is gone afterwards.
    async fn verify(&self, options: VerifyOptions) -> Result<EgressVerdict>;
}

/// What to verify, and how thoroughly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// The policy; the backend's default if absent.
    pub policy: Option<EgressPolicy>,
    /// How much is tried.
    pub extent: Extent,
}

/// How much is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// One leg for each way out.
    #[default]
    Quick,
    /// Every leak that is known.
    Full,
}

/// What was observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EgressVerdict {
    /// The verdict.
    pub state: VerdictState,
    /// What was checked, and how.
    pub detail: String,
    /// What to do about it.
    pub remediation: Option<String>,
    /// Every leg.
    pub legs: Vec<EgressLeg>,
}

/// A verdict. Only an observation is `Filtered` or `Open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictState {
    /// Every denied leg was tried and refused.
    Filtered,
    /// A denied leg was reached.
    Open,
    /// The check could not be made.
    Inconclusive,
}

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EgressLeg {
    /// Its name.
    pub name: String,
    /// What happened.
    pub outcome: LegOutcome,
    /// What can be promised of it.
    pub class: LegClass,
    /// More, for a person.
    pub detail: String,
}

/// What can be promised of a way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LegClass {
    /// It is closed.
    #[default]
    Blocked,
    /// Something gets through, and how much is bounded; `detail` has the number.
    Bounded,
    /// It is seen only where a rule has the gateway speak TLS itself.
    WithInterception,
    /// It can't be closed while the policy allows what it allows.
    Residual,
    /// It has to be reached, or nothing was observed.
    Control,
}

/// What happened to a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LegOutcome {
    /// It was reached.
    Reached,
    /// It was refused, while the host itself could reach it.
    Refused,
    /// It was not tried, or says nothing.
    Untested,
}

/// What room there is.
#[async_trait]
pub trait CapacityReport: Send + Sync {
    /// Measures it. What can't be measured is absent, with the reason in `detail`.
    async fn measure(&self) -> Result<Capacity>;
}
