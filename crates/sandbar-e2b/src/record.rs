//! What E2B says of a sandbox, as the contract has it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbar_core::{
    DeadlineAction, EgressSummary, Fallback, GuestPath, Isolation, IsolationReport, Limit, LimitState, Query,
    SandboxId, SandboxRecord, State, VolumeAttachment, VolumeName,
};
use sandbar_wire::e2b::{ListedSandbox, OnTimeout, SandboxDetail, SandboxState};

use crate::E2bConfig;
use crate::marks::Marks;
use crate::network;

/// Bytes of a MiB, which E2B calls MB.
const MIB: u64 = 1 << 20;

/// The state: what is not paused runs.
pub(crate) fn state(state: SandboxState) -> State {
    match state {
        SandboxState::Paused => State::Sleeping,
        SandboxState::Running => State::Running,
    }
}

/// E2B's states of those asked for; both if none is.
pub(crate) fn states(query: &Query) -> Vec<SandboxState> {
    let mut states: Vec<_> = query
        .states
        .iter()
        .filter_map(|state| match state {
            State::Running => Some(SandboxState::Running),
            State::Sleeping => Some(SandboxState::Paused),
            _ => None,
        })
        .collect();
    if states.is_empty() {
        states = vec![SandboxState::Running, SandboxState::Paused];
    }
    states
}

/// The weakest wall that a sandbox is known to have.
pub(crate) fn isolation(config: &E2bConfig) -> Isolation {
    if config.is_e2b_itself() { Isolation::MicroVm } else { Isolation::Emulated }
}

/// The record of a sandbox in a listing, which tells neither its network nor, of those that others made, what happens at its deadline.
/// `None` if it has an id that no sandbox has.
pub(crate) fn of_row(config: &E2bConfig, row: &ListedSandbox) -> Option<SandboxRecord> {
    let id = SandboxId::new(row.sandbox_id.clone()).ok()?;
    let Marks { is_ours: _, project, name, labels, on_deadline, lifetime: _, has_volumes: _, creation: _ } =
        Marks::of(row.metadata.as_ref().unwrap_or(&BTreeMap::new()));
    let state = state(row.state);
    let started_at = row.started_at.parse().ok();
    Some(SandboxRecord {
        version: SandboxRecord::VERSION,
        id,
        name,
        project,
        state,
        template: row.alias.clone().or_else(|| Some(row.template_id.clone()).filter(|id| !id.is_empty())),
        labels,
        created_at: started_at,
        started_at,
        deadline: deadline(row),
        on_deadline: on_deadline.unwrap_or_default(),
        isolation: IsolationReport { tier: isolation(config), ids: None },
        fallbacks: fallbacks(config),
        limits: limits(row),
        last_kill: None,
        ports: Vec::new(),
        egress: EgressSummary { policy: None, gateway: None },
        main: None,
        volumes: volumes(row),
        reason: None,
    })
}

/// The record of a sandbox by itself.
pub(crate) fn of_detail(config: &E2bConfig, detail: &SandboxDetail) -> Option<SandboxRecord> {
    let mut record = of_row(config, &detail.listed)?;
    if let Some(lifecycle) = detail.lifecycle {
        record.on_deadline = match lifecycle.on_timeout {
            OnTimeout::Kill => DeadlineAction::Destroy,
            OnTimeout::Pause => DeadlineAction::Pause,
        };
    }
    record.egress.policy =
        network::read(detail.network.as_ref(), detail.allow_internet_access, config.is_e2b_itself());
    Some(record)
}

/// When it ends. Of a sandbox that is paused, E2B says in that place when it was paused.
pub(crate) fn deadline(row: &ListedSandbox) -> Option<Timestamp> {
    (state(row.state) == State::Running).then(|| row.end_at.parse().ok()).flatten()
}

fn limits(row: &ListedSandbox) -> BTreeMap<String, Limit> {
    let values = [
        ("cpu", u64::from(row.cpu_count) * 1000),
        ("memory", row.memory_mb.saturating_mul(MIB)),
        ("disk", row.disk_size_mb.saturating_mul(MIB)),
    ];
    let known = values.into_iter().filter(|(_, value)| *value > 0);
    // The platform's machines have so much and no more; what is left out is not told.
    let limit = |value| Limit { value: Some(value), state: LimitState::Enforced, hits: None };
    known.map(|(name, value)| (name.to_owned(), limit(value))).collect()
}

fn volumes(row: &ListedSandbox) -> Vec<VolumeAttachment> {
    let mounts = row.volume_mounts.iter().flatten();
    let attached = mounts.filter_map(|mount| {
        let name = VolumeName::new(mount.name.clone()).ok()?;
        Some(VolumeAttachment { name, path: GuestPath::new(&mount.path).ok()? })
    });
    attached.collect()
}

fn fallbacks(config: &E2bConfig) -> Vec<Fallback> {
    let mut fallbacks = vec![Fallback {
        condition: "egress-protocols".to_owned(),
        observed: "E2B's firewall does not tell UDP from TCP".to_owned(),
        cost: "what is allowed by its address, or since all is, is allowed by UDP as well".to_owned(),
    }];
    if !config.is_e2b_itself() {
        fallbacks.push(Fallback {
            condition: "isolation-unknown".to_owned(),
            observed: "the server is not E2B's own, and its API does not say how it isolates".to_owned(),
            cost: "no isolation is promised".to_owned(),
        });
    }
    fallbacks
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(change: &serde_json::Value) -> ListedSandbox {
        let mut row = json!({
            "templateID": "t1", "sandboxID": "iabc", "clientID": "c", "startedAt": "2026-01-01T00:00:00Z",
            "endAt": "2026-01-01T01:00:00Z", "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 0, "state": "running",
            "envdVersion": "0.6.13",
        });
        for (key, value) in change.as_object().unwrap() {
            row[key] = value.clone();
        }
        serde_json::from_value(row).unwrap()
    }

    fn record(change: &serde_json::Value) -> SandboxRecord {
        of_row(&E2bConfig::new(), &row(change)).unwrap()
    }

    #[test]
    fn a_row_becomes_a_record() {
        let made = record(&json!({"metadata": {"projectId": "p", "a": "b"}}));
        assert_eq!(made.state, State::Running);
        assert_eq!(made.project.as_ref().map(sandbar_core::ProjectId::as_str), Some("p"));
        assert_eq!(made.labels.get("a"), Some("b"));
        assert_eq!(made.created_at, made.started_at);
        assert_eq!(made.deadline, "2026-01-01T01:00:00Z".parse().ok());
        assert_eq!(made.limits["memory"].value, Some(512 << 20));
        assert!(!made.limits.contains_key("disk") && made.ports.is_empty());
        assert_eq!(made.isolation.tier, Isolation::MicroVm);
    }

    #[test]
    fn what_is_paused_sleeps_and_has_no_deadline() {
        let made = record(&json!({"state": "paused"}));
        assert_eq!((made.state, made.deadline), (State::Sleeping, None));
    }

    #[test]
    fn a_state_that_nobody_knows_counts_as_running() {
        assert_eq!(record(&json!({"state": "snapshotting"})).state, State::Running);
    }

    #[test]
    fn times_that_are_none_and_a_missing_project_are_absent() {
        let made = record(&json!({"startedAt": "yesterday", "metadata": null}));
        assert_eq!((made.created_at, made.started_at, made.project), (None, None, None));
    }

    #[test]
    fn volumes_are_those_of_the_row() {
        let made = record(&json!({"volumeMounts": [{"name": "v", "path": "/data"}]}));
        assert_eq!((made.volumes[0].name.as_str(), made.volumes[0].path.to_str()), ("v", Some("/data")));
        assert!(record(&json!({})).volumes.is_empty());
    }

    #[test]
    fn nothing_is_promised_of_a_server_that_is_not_e2b_s() {
        let config = E2bConfig::new().with_api_url("http://localhost:1");
        let made = of_row(&config, &row(&json!({}))).unwrap();
        assert_eq!(made.isolation.tier, Isolation::Emulated);
        assert!(made.fallbacks.iter().any(|fallback| fallback.condition == "isolation-unknown"));
    }

    #[test]
    fn states_asked_for_are_e2b_s() {
        let of = |wanted: &[State]| states(&Query::new().with_states(wanted.iter().copied()));
        assert_eq!(of(&[State::Sleeping]), [SandboxState::Paused]);
        assert_eq!(of(&[]).len(), 2);
    }
}
