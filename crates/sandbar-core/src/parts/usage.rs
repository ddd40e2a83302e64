use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Result, SandboxId, SandboxName};

/// What sandboxes that ended had used.
#[async_trait]
pub trait UsageHistory: Send + Sync {
    /// The sandboxes that ended, oldest first; only the one asked for if `id` names one. What is kept is bounded: the oldest go first.
    ///
    /// # Behavior
    /// - A sandbox that was ready has one entry once it has ended, whatever ended it; one that lives has none.
    /// - What was not measured is absent, never 0.
    async fn ended(&self, id: Option<&SandboxId>) -> Result<UsageReport>;
}

/// What is known of sandboxes that ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsageReport {
    /// One entry a sandbox.
    pub entries: Vec<UsageEntry>,
    /// Entries that could not be read, such as one whose writer was killed.
    pub unreadable: u64,
}

/// What one sandbox had used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageEntry {
    /// Version of this form.
    pub version: u32,
    /// Its id.
    pub id: SandboxId,
    /// The name that it had.
    pub name: Option<SandboxName>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was ready.
    pub started_at: Timestamp,
    /// When it ended; where nobody saw that, no later than its deadline.
    pub ended_at: Timestamp,
    /// What ended it.
    pub cause: EndCause,
    /// From ready to ended, in seconds.
    pub wall_seconds: f64,
    /// Processor time, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Most bytes of memory at one time.
    pub memory_peak_bytes: Option<u64>,
    /// Bytes of disk that it held when they were last counted.
    pub disk_bytes: Option<u64>,
}

impl UsageEntry {
    /// The version of the form written today.
    pub const VERSION: u32 = 1;
}

/// What ended a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EndCause {
    /// Somebody destroyed it.
    Destroyed,
    /// Its deadline passed.
    Deadline,
    /// The process that it belonged to ended.
    OwnerGone,
    /// Its first process ended by itself.
    Died,
    /// It was found ended, or left by whoever watched over it: nobody saw what ended it.
    Unknown,
}
