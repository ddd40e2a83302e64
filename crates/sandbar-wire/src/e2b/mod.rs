//! E2B's REST API: the documents of its control plane, for servers and clients. Unknown fields are ignored on reading.

mod error;
mod lifecycle;
mod logs;
mod metrics;
mod network;
mod sandbox;
mod team;
mod templates;
mod volumes;

pub use error::ErrorBody;
pub use lifecycle::{
    ConnectSandbox, ForkSandbox, PauseSandbox, RefreshSandbox, ResumeSandbox, SandboxFork, SetTimeout,
};
pub use logs::{LogLevel, LogLine, SandboxLogEntry, SandboxLogs, SandboxLogsV2};
pub use metrics::{SandboxMetric, SandboxesMetrics};
pub use network::{ALL_TRAFFIC, EgressProxy, NetworkConfig, NetworkRule, NetworkTransform, NetworkUpdate};
pub use sandbox::{
    AutoResume, ListedSandbox, NewSandbox, OnTimeout, PauseMode, Sandbox, SandboxDetail, SandboxLifecycle,
    SandboxState, VolumeMount,
};
pub use team::{Team, TeamMetric};
pub use templates::{
    AliasAnswer, AssignTags, AssignedTags, BuildInfo, BuildLogEntry, BuildLogs, BuildOrder, BuildReason,
    DeleteTags, FileUpload, ListedBuild, ListedTemplate, NewBuild, NewSnapshot, OrderedStep, RegisteredBuild,
    SnapshotInfo, TemplateTag, TemplateUpdate, TemplateUpdated, TemplateWithBuilds,
};
pub use volumes::{NewVolume, Volume, VolumeAndToken, VolumeEntry, VolumeErrorBody, VolumeMetadata};

use std::collections::BTreeMap;

/// A sandbox' metadata: the caller's own pairs.
pub type Metadata = BTreeMap<String, String>;
