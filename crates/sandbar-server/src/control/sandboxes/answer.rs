use std::time::Duration;

use jiff::Timestamp;
use sandbar_core::{DeadlineAction, SandboxRecord, State};
use sandbar_wire::e2b::{
    ListedSandbox, OnTimeout, PauseMode, Sandbox, SandboxDetail, SandboxLifecycle, SandboxState, VolumeMount,
};
use sandbar_wire::envd::ENVD_VERSION;

use crate::app::App;
use crate::marks::{Marks, metadata};

/// What stands where E2B once named a machine. SDKs of long ago put it behind the id.
const CLIENT_ID: &str = "sandbar";

/// Bytes of a MiB, which E2B calls MB.
const MIB: u64 = 1 << 20;

/// The state as anybody sees it. One in the making or on its way out is not there.
pub(super) fn exposed(state: State) -> Option<SandboxState> {
    match state {
        State::Running => Some(SandboxState::Running),
        // What has stopped keeps its files, can't be connected to, and can be killed.
        State::Sleeping | State::Stopped => Some(SandboxState::Paused),
        _ => None,
    }
}

/// When it was started.
pub(super) fn started_at(record: &SandboxRecord) -> Timestamp {
    record.started_at.or(record.created_at).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl App {
    /// What creating, connecting and forking answer.
    pub(super) fn sandbox_answer(&self, record: &SandboxRecord, marks: &Marks) -> Sandbox {
        Sandbox {
            template_id: marks.template.clone(),
            sandbox_id: record.id.to_string(),
            client_id: CLIENT_ID.to_owned(),
            envd_version: ENVD_VERSION.to_owned(),
            alias: marks.alias.clone(),
            envd_access_token: marks.is_secure.then(|| self.seal.guest_token(&record.id)),
            // Of every secure one: the code interpreter's port asks for it.
            traffic_access_token: (marks.is_secure || marks.is_private)
                .then(|| self.seal.traffic_token(&record.id)),
            domain: Some(self.domain()),
        }
    }

    /// What a list says of it; `paused_at` is when it was paused, if anybody knows.
    pub(super) fn listed(
        &self,
        record: &SandboxRecord,
        marks: &Marks,
        paused_at: Option<Timestamp>,
    ) -> Option<ListedSandbox> {
        let state = exposed(record.state)?;
        let limit = |name: &str| record.limits.get(name).and_then(|limit| limit.value);
        let end_at = match state {
            SandboxState::Running => record.deadline.unwrap_or_else(|| self.latest_end(record)),
            SandboxState::Paused => paused_at.or(record.deadline).unwrap_or_else(|| started_at(record)),
        };
        let volumes = record.volumes.iter().map(|volume| VolumeMount {
            name: own_name(volume.name.as_str(), &marks.tenant),
            path: volume.path.to_string(),
        });
        let volumes: Vec<_> = volumes.collect();
        Some(ListedSandbox {
            template_id: marks.template.clone(),
            sandbox_id: record.id.to_string(),
            client_id: CLIENT_ID.to_owned(),
            started_at: started_at(record).to_string(),
            end_at: end_at.to_string(),
            cpu_count: limit("cpu")
                .map_or_else(host_cpus, |millis| u32::try_from(millis.div_ceil(1000)).unwrap_or(u32::MAX)),
            memory_mb: limit("memory").unwrap_or_default() / MIB,
            disk_size_mb: limit("disk").unwrap_or_default() / MIB,
            state,
            envd_version: ENVD_VERSION.to_owned(),
            alias: marks.alias.clone(),
            metadata: Some(metadata(record)),
            volume_mounts: (!volumes.is_empty()).then_some(volumes),
        })
    }

    /// What is said of one by itself. What was set of its network is filled in by whoever knows it.
    pub(super) fn detail(
        &self,
        record: &SandboxRecord,
        marks: &Marks,
        paused_at: Option<Timestamp>,
    ) -> Option<SandboxDetail> {
        let listed = self.listed(record, marks, paused_at)?;
        let on_timeout = match record.on_deadline {
            DeadlineAction::Destroy => OnTimeout::Kill,
            DeadlineAction::Pause => OnTimeout::Pause,
        };
        let pause_mode = match record.state {
            State::Sleeping => Some(PauseMode::Full),
            State::Stopped => Some(PauseMode::Filesystem),
            _ => None,
        };
        Some(SandboxDetail {
            listed,
            envd_access_token: marks.is_secure.then(|| self.seal.guest_token(&record.id)),
            allow_internet_access: None,
            domain: Some(self.domain()),
            network: None,
            lifecycle: Some(SandboxLifecycle { auto_resume: marks.auto_resume, on_timeout }),
            pause_mode,
        })
    }

    /// The end of one that has none of its own.
    fn latest_end(&self, record: &SandboxRecord) -> Timestamp {
        let longest: Duration = self.config.limits.longest_timeout;
        started_at(record).checked_add(longest).unwrap_or(Timestamp::MAX)
    }
}

/// A tenant's own name of a volume.
fn own_name(name: &str, tenant: &str) -> String {
    let own = name.strip_prefix(tenant).and_then(|rest| rest.strip_prefix('-'));
    own.unwrap_or(name).to_owned()
}

/// The host's processors, for a sandbox that may use them all.
pub(super) fn host_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}
