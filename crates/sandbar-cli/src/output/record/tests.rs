use sandbar::{
    EgressPolicy, EgressSummary, GuestPath, IdMapping, Isolation, KillCause, LastKill, SandboxId, State,
    VolumeName,
};
use serde_json::json;

use super::*;
use crate::output::table;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn record() -> SandboxRecord {
    let limit = |value, state, hits| Limit { value, state, hits };
    SandboxRecord {
        version: 1,
        id: SandboxId::new("i1a2b3").unwrap(),
        name: Some("demo".parse().unwrap()),
        project: None,
        state: State::Stopped,
        template: Some("host".into()),
        labels: Labels::new().with("team", "co\x1b[2Jre").unwrap(),
        created_at: Some(time("2024-01-01T00:00:00.123456Z")),
        started_at: None,
        deadline: Some(time("2024-01-01T01:00:00Z")),
        on_deadline: DeadlineAction::Destroy,
        isolation: IsolationReport { tier: Isolation::Namespaces, ids: Some(IdMapping::Range) },
        fallbacks: vec![Fallback {
            condition: "landlock".into(),
            observed: "there is none".into(),
            cost: "a wall is missing".into(),
        }],
        limits: BTreeMap::from([
            ("memory".into(), limit(Some(512 << 20), LimitState::Enforced, Some(2))),
            ("cpu".into(), limit(Some(1500), LimitState::Watched, None)),
            ("pids".into(), limit(None, LimitState::None, None)),
        ]),
        last_kill: Some(LastKill {
            cause: KillCause::Oom,
            at: time("2024-01-01T00:00:30Z"),
            detail: "`python3`".into(),
        }),
        ports: vec![PortMapping { guest: 80, host: "127.0.0.1".into(), port: 40_000 }],
        egress: EgressSummary { policy: Some(EgressPolicy::DenyAll), gateway: None },
        main: None,
        volumes: vec![VolumeAttachment {
            name: VolumeName::new("data").unwrap(),
            path: GuestPath::new("/data").unwrap(),
        }],
        reason: None,
    }
}

#[test]
fn json_is_the_form_of_decision_0004() {
    assert_eq!(
        serde_json::to_value(RecordJson::from(&record())).unwrap(),
        json!({
            "version": 1,
            "id": "i1a2b3",
            "name": "demo",
            "project": null,
            "state": "stopped",
            "template": "host",
            "labels": {"team": "co\u{1b}[2Jre"},
            "created_at": "2024-01-01T00:00:00.123Z",
            "started_at": null,
            "deadline": "2024-01-01T01:00:00.000Z",
            "on_deadline": "destroy",
            "isolation": {"tier": "namespaces", "ids": "range"},
            "fallbacks": [{"condition": "landlock", "observed": "there is none", "cost": "a wall is missing"}],
            "limits": {
                "cpu": {"value": 1500, "state": "watched", "hits": null},
                "memory": {"value": 536_870_912, "state": "enforced", "hits": 2},
                "pids": {"value": null, "state": "none", "hits": null},
            },
            "last_kill": {"cause": "oom", "at": "2024-01-01T00:00:30.000Z", "detail": "`python3`"},
            "ports": [{"guest": 80, "host": "127.0.0.1", "port": 40_000}],
            "egress": {"policy": "deny-all", "gateway": null},
            "main": null,
            "volumes": [{"name": "data", "path": "/data"}],
            "reason": null,
        })
    );
}

#[test]
fn text_is_for_people_and_escaped() {
    insta::assert_snapshot!(describe(&record(), time("2024-01-01T00:05:00Z")), @r"
    id          i1a2b3
    name        demo
    state       stopped
    template    host
    label       team=co\u{1b}[2Jre
    created     2024-01-01T00:00:00.123Z (5m ago)
    deadline    2024-01-01T01:00:00.000Z (in 55m, then destroy)
    isolation   namespaces, ids: range
    without     landlock: there is none; a wall is missing
    limit       cpu: 1.500 cores (watched)
    limit       memory: 512 MiB (enforced, hit 2 times)
    limit       pids: none (not enforced)
    last kill   oom at 2024-01-01T00:00:30.000Z: `python3`
    port        80 at 127.0.0.1:40000
    egress      deny-all
    volume      data at /data
    ");
}

#[test]
fn the_table_lines_up_and_is_escaped() {
    let mut unnamed = record();
    unnamed.name = None;
    unnamed.labels = Labels::new();
    unnamed.deadline = None;
    insta::assert_snapshot!(table(&[record(), unnamed], time("2024-01-01T00:05:00Z")), @r"
    ID      NAME  STATE    TEMPLATE  CREATED  ENDS IN  LABELS
    i1a2b3  demo  stopped  host      5m ago   55m      team=co\u{1b}[2Jre
    i1a2b3  -     stopped  host      5m ago   never
    ");
}
