use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How grave an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// For whoever looks for a fault.
    Debug,
    /// What happened.
    Info,
    /// What may be wrong.
    Warn,
    /// What is wrong.
    Error,
}

/// An entry of the logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLogEntry {
    /// When, as of RFC 3339.
    pub timestamp: String,
    /// What was said.
    pub message: String,
    /// How grave it is.
    pub level: LogLevel,
    /// More, by name.
    pub fields: BTreeMap<String, String>,
}

/// A line of the older form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When, as of RFC 3339.
    pub timestamp: String,
    /// What was said.
    pub line: String,
}

/// `GET /sandboxes/{id}/logs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxLogs {
    /// In the older form.
    pub logs: Vec<LogLine>,
    /// The same in the newer one.
    pub log_entries: Vec<SandboxLogEntry>,
}

/// `GET /v2/sandboxes/{id}/logs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLogsV2 {
    /// The entries.
    pub logs: Vec<SandboxLogEntry>,
}
