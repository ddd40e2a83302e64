use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Metadata, NetworkConfig};

/// `POST /v2/sandboxes`, and `POST /sandboxes` of before.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NewSandbox {
    /// Id or name of the template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Seconds until it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// Whether it is paused then, instead of ended.
    #[serde(rename = "autoPause", default, skip_serializing_if = "Option::is_none")]
    pub auto_pause: Option<bool>,
    /// Whether that keeps its memory.
    #[serde(rename = "autoPauseMemory", default, skip_serializing_if = "Option::is_none")]
    pub auto_pause_memory: Option<bool>,
    /// Whether a request wakes it.
    #[serde(rename = "autoResume", default, skip_serializing_if = "Option::is_none")]
    pub auto_resume: Option<AutoResume>,
    /// Whether its guest asks for a token. Only of the older form; the newer one always means yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    /// Whether it reaches anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_internet_access: Option<bool>,
    /// What it reaches, and who reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfig>,
    /// The caller's own pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// Environment of its commands.
    #[serde(rename = "envVars", default, skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// Configuration of a gateway for model contexts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<Value>,
    /// Identity tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iam: Option<Value>,
    /// Volumes, and where they are.
    #[serde(rename = "volumeMounts", default, skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
}

impl fmt::Debug for NewSandbox {
    /// Without values of variables and of what else may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewSandbox")
            .field("template_id", &self.template_id)
            .field("timeout", &self.timeout)
            .field("env_vars", &self.env_vars.as_ref().map(|env| env.keys().collect::<Vec<_>>()))
            .finish_non_exhaustive()
    }
}

/// Whether a request wakes a paused sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoResume {
    /// Whether it does.
    pub enabled: bool,
}

/// A volume by its name, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    /// The volume's name.
    pub name: String,
    /// An absolute path.
    pub path: String,
}

/// What creating, connecting and forking answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The template's id.
    #[serde(rename = "templateID", default)]
    pub template_id: String,
    /// The sandbox' id.
    #[serde(rename = "sandboxID")]
    pub sandbox_id: String,
    /// Once the machine that it was on; of no meaning any more.
    #[serde(rename = "clientID", default)]
    pub client_id: String,
    /// Version of the guest's protocol.
    #[serde(rename = "envdVersion", default)]
    pub envd_version: String,
    /// A name of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// The token for its guest.
    #[serde(rename = "envdAccessToken", default, skip_serializing_if = "Option::is_none")]
    pub envd_access_token: Option<String>,
    /// The token for its ports.
    #[serde(rename = "trafficAccessToken", default, skip_serializing_if = "Option::is_none")]
    pub traffic_access_token: Option<String>,
    /// The domain below which its ports have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

impl fmt::Debug for Sandbox {
    /// Without tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox")
            .field("template_id", &self.template_id)
            .field("sandbox_id", &self.sandbox_id)
            .finish_non_exhaustive()
    }
}

/// The states that anybody sees. A client takes one that it does not know for running: it can't be waited for as one that is paused can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", from = "String")]
pub enum SandboxState {
    /// It runs.
    Running,
    /// It does not, and its files are kept.
    Paused,
}

impl From<String> for SandboxState {
    fn from(word: String) -> Self {
        if word == "paused" { Self::Paused } else { Self::Running }
    }
}

/// A sandbox in a list. A client does without what is not needed to know which it is and how it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSandbox {
    /// The template's id.
    #[serde(rename = "templateID", default)]
    pub template_id: String,
    /// The sandbox' id.
    #[serde(rename = "sandboxID")]
    pub sandbox_id: String,
    /// Once the machine that it was on; of no meaning any more.
    #[serde(rename = "clientID", default)]
    pub client_id: String,
    /// When it was started, as of RFC 3339.
    #[serde(rename = "startedAt", default)]
    pub started_at: String,
    /// When it ends, as of RFC 3339.
    #[serde(rename = "endAt", default)]
    pub end_at: String,
    /// Processors.
    #[serde(rename = "cpuCount", default)]
    pub cpu_count: u32,
    /// Memory in MiB.
    #[serde(rename = "memoryMB", default)]
    pub memory_mb: u64,
    /// Disk space in MiB.
    #[serde(rename = "diskSizeMB", default)]
    pub disk_size_mb: u64,
    /// Its state.
    pub state: SandboxState,
    /// Version of the guest's protocol.
    #[serde(rename = "envdVersion", default)]
    pub envd_version: String,
    /// A name of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// The caller's own pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// Volumes, and where they are.
    #[serde(rename = "volumeMounts", default, skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
}

/// A sandbox by itself.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxDetail {
    /// What a list says of it.
    #[serde(flatten)]
    pub listed: ListedSandbox,
    /// The token for its guest.
    #[serde(rename = "envdAccessToken", default, skip_serializing_if = "Option::is_none")]
    pub envd_access_token: Option<String>,
    /// Whether it reaches anything, as it was set.
    #[serde(rename = "allowInternetAccess", default, skip_serializing_if = "Option::is_none")]
    pub allow_internet_access: Option<bool>,
    /// The domain below which its ports have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// What it reaches and who reaches it, as it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfig>,
    /// What becomes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<SandboxLifecycle>,
    /// What its pause kept.
    #[serde(rename = "pauseMode", default, skip_serializing_if = "Option::is_none")]
    pub pause_mode: Option<PauseMode>,
}

impl fmt::Debug for SandboxDetail {
    /// Without tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxDetail").field("listed", &self.listed).finish_non_exhaustive()
    }
}

/// What becomes of a sandbox at its end, and of requests after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLifecycle {
    /// Whether a request wakes it.
    #[serde(rename = "autoResume")]
    pub auto_resume: bool,
    /// What happens at its end.
    #[serde(rename = "onTimeout")]
    pub on_timeout: OnTimeout,
}

/// What happens at the end of a sandbox' time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// It is ended.
    Kill,
    /// It is paused.
    Pause,
}

/// What a pause keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseMode {
    /// Memory and files.
    Full,
    /// Files.
    Filesystem,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_sdks_send_is_read() {
        let js: NewSandbox = serde_json::from_value(
            json!({"templateID":"base","metadata":{"a":"b c"},"timeout":62,"novel":[1]}),
        )
        .unwrap();
        assert_eq!((js.template_id.as_str(), js.timeout), ("base", Some(62)));
        let python: NewSandbox = serde_json::from_value(
            json!({"templateID":"base","metadata":{},"envVars":{"K":"secret"},"mcp":null,"autoResume":{"enabled":true}}),
        )
        .unwrap();
        assert!(python.auto_resume.unwrap().enabled && python.mcp.is_none());
        assert!(!format!("{python:?}").contains("secret"));
    }

    #[test]
    fn a_detail_is_flat_and_has_all_that_python_demands() {
        let listed = ListedSandbox {
            template_id: "base".into(),
            sandbox_id: "s1".into(),
            client_id: "sandbar".into(),
            started_at: "2026-01-01T00:00:00Z".into(),
            end_at: "2026-01-01T00:05:00Z".into(),
            cpu_count: 2,
            memory_mb: 512,
            disk_size_mb: 0,
            state: SandboxState::Running,
            envd_version: "0.6.13".into(),
            alias: None,
            metadata: None,
            volume_mounts: None,
        };
        let detail = SandboxDetail {
            listed,
            envd_access_token: Some("token".into()),
            allow_internet_access: None,
            domain: None,
            network: None,
            lifecycle: None,
            pause_mode: None,
        };
        let value = serde_json::to_value(&detail).unwrap();
        for key in [
            "templateID",
            "sandboxID",
            "clientID",
            "startedAt",
            "endAt",
            "cpuCount",
            "memoryMB",
            "diskSizeMB",
            "state",
            "envdVersion",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(value["state"], "running");
        assert_eq!(serde_json::from_value::<SandboxDetail>(value).unwrap(), detail);
        assert!(!format!("{detail:?}").contains("token\""));
    }
}
