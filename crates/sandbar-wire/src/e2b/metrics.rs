use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a sandbox used at one moment. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxMetric {
    /// When, as of RFC 3339.
    pub timestamp: String,
    /// When, in Unix seconds.
    pub timestamp_unix: i64,
    /// Processors.
    pub cpu_count: u32,
    /// Percent of them in use.
    pub cpu_used_pct: f64,
    /// Memory in use.
    pub mem_used: u64,
    /// Memory that may be used.
    pub mem_total: u64,
    /// Memory that holds files and can be given back.
    pub mem_cache: u64,
    /// Disk space in use.
    pub disk_used: u64,
    /// Disk space that may be used.
    pub disk_total: u64,
}

/// `GET /sandboxes/metrics`: the newest of each sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxesMetrics {
    /// By id.
    pub sandboxes: BTreeMap<String, SandboxMetric>,
}
