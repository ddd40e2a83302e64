use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// Error body of the plain HTTP endpoints; `code` is the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpError {
    /// HTTP status.
    pub code: u16,
    /// Text for a person.
    pub message: String,
}

impl HttpError {
    /// An error with that status and message.
    pub fn new(code: u16, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (status {})", self.message, self.code)
    }
}

impl std::error::Error for HttpError {}

/// `GET /metrics`. Sizes are bytes unless the name says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// Unix seconds.
    pub ts: i64,
    /// Processors.
    pub cpu_count: u32,
    /// Percent of all processors together, since the last call.
    pub cpu_used_pct: f64,
    /// Memory.
    pub mem_total: u64,
    /// Memory in use, without cache.
    pub mem_used: u64,
    /// Page cache.
    pub mem_cache: u64,
    /// Memory in MiB.
    pub mem_total_mib: u64,
    /// Memory in use in MiB.
    pub mem_used_mib: u64,
    /// Used on the root file system.
    pub disk_used: u64,
    /// Size of the root file system.
    pub disk_total: u64,
}

/// `POST /init`. Only the host side can send it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InitRequest {
    /// Replaces the sandbox's environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// The token that requests must carry from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token: Option<String>,
    /// A request older than the last one taken is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
    /// User of requests that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_user: Option<String>,
    /// Working folder of requests that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_workdir: Option<String>,
    /// A certificate to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// Network volumes to mount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<serde_json::Value>>,
}

impl fmt::Debug for InitRequest {
    /// Without values: environment and token are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitRequest")
            .field("default_user", &self.default_user)
            .field("default_workdir", &self.default_workdir)
            .field("timestamp", &self.timestamp)
            .finish_non_exhaustive()
    }
}
