use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;
use sandbar::{
    DeadlineAction, ExitStatus, Fallback, IsolationReport, Labels, Limit, LimitState, MainState, MainStatus,
    PortMapping, RestartPolicy, SandboxRecord, VolumeAttachment,
};
use serde::Serialize;

use crate::output::escape;
use crate::output::policy::{EgressJson, egress_lines};
use crate::output::time::{distance, rfc3339};

/// Egress rules shown of a sandbox beside all else: what leaves the rest on one screen. `network` shows all.
const MAX_RULES: usize = 10;

/// The record form of decision 0004.
#[derive(Debug, Serialize)]
pub(crate) struct RecordJson<'a> {
    version: u32,
    id: &'a str,
    name: Option<&'a str>,
    project: Option<&'a str>,
    state: &'static str,
    template: Option<&'a str>,
    labels: &'a Labels,
    created_at: Option<String>,
    started_at: Option<String>,
    deadline: Option<String>,
    on_deadline: DeadlineAction,
    isolation: IsolationReport,
    fallbacks: &'a [Fallback],
    limits: &'a BTreeMap<String, Limit>,
    last_kill: Option<LastKillJson<'a>>,
    ports: &'a [PortMapping],
    egress: EgressJson<'a>,
    main: Option<MainJson<'a>>,
    volumes: &'a [VolumeAttachment],
    reason: Option<&'a str>,
}

/// A main command; its arguments are not told.
#[derive(Debug, Serialize)]
struct MainJson<'a> {
    program: &'a str,
    restart: RestartPolicy,
    state: &'static str,
    pid: Option<u32>,
    started_at: Option<String>,
    restarts: u64,
    code: Option<i32>,
    signal: Option<i32>,
    next_start: Option<String>,
    problem: Option<&'a str>,
}

impl<'a> From<&'a MainStatus> for MainJson<'a> {
    fn from(main: &'a MainStatus) -> Self {
        let MainStatus { program, restart, state, pid, started_at, restarts, exit, next_start, problem } =
            main;
        let (code, signal) = match exit {
            Some(ExitStatus::Code(code)) => (Some(*code), None),
            Some(ExitStatus::Signal(signal)) => (None, Some(*signal)),
            Some(ExitStatus::Unknown) | None => (None, None),
        };
        Self {
            program,
            restart: *restart,
            state: state.as_str(),
            pid: *pid,
            started_at: started_at.map(rfc3339),
            restarts: *restarts,
            code,
            signal,
            next_start: next_start.map(rfc3339),
            problem: problem.as_deref(),
        }
    }
}

#[derive(Debug, Serialize)]
struct LastKillJson<'a> {
    cause: sandbar::KillCause,
    at: String,
    detail: &'a str,
}

impl<'a> From<&'a SandboxRecord> for RecordJson<'a> {
    fn from(record: &'a SandboxRecord) -> Self {
        // Taken apart in full, so that a new field does not compile until it has a key here.
        let SandboxRecord {
            version: _,
            id,
            name,
            project,
            state,
            template,
            labels,
            created_at,
            started_at,
            deadline,
            on_deadline,
            isolation,
            fallbacks,
            limits,
            last_kill,
            ports,
            egress,
            main,
            volumes,
            reason,
        } = record;
        Self {
            version: SandboxRecord::VERSION,
            id: id.as_str(),
            name: name.as_ref().map(AsRef::as_ref),
            project: project.as_ref().map(AsRef::as_ref),
            state: state.as_str(),
            template: template.as_deref(),
            labels,
            created_at: created_at.map(rfc3339),
            started_at: started_at.map(rfc3339),
            deadline: deadline.map(rfc3339),
            on_deadline: *on_deadline,
            isolation: *isolation,
            fallbacks,
            limits,
            last_kill: last_kill.as_ref().map(|kill| LastKillJson {
                cause: kill.cause,
                at: rfc3339(kill.at),
                detail: &kill.detail,
            }),
            ports,
            egress: egress.into(),
            main: main.as_ref().map(MainJson::from),
            volumes,
            reason: reason.as_deref(),
        }
    }
}

/// A record as lines for a person.
pub(crate) fn describe(record: &SandboxRecord, now: Timestamp) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: &str| text.push_str(&key_line(key, value));
    line("id", record.id.as_str());
    if let Some(name) = &record.name {
        line("name", name.as_str());
    }
    if let Some(project) = &record.project {
        line("project", project.as_str());
    }
    line("state", record.state.as_str());
    if let Some(reason) = &record.reason {
        line("reason", reason);
    }
    line("template", record.template.as_deref().unwrap_or("unknown"));
    for (key, value) in record.labels.iter() {
        line("label", &format!("{key}={value}"));
    }
    if let Some(at) = record.created_at {
        line("created", &format!("{} ({} ago)", rfc3339(at), distance(at, now)));
    }
    line(
        "deadline",
        &record.deadline.map_or("never".to_owned(), |at| {
            format!("{} (in {}, then {})", rfc3339(at), distance(at.max(now), now), word(&record.on_deadline))
        }),
    );
    let ids = record.isolation.ids.map(|ids| format!(", ids: {}", word(&ids))).unwrap_or_default();
    line("isolation", &format!("{}{ids}", word(&record.isolation.tier)));
    for Fallback { condition, observed, cost } in &record.fallbacks {
        line("without", &format!("{condition}: {observed}; {cost}"));
    }
    for (name, limit) in &record.limits {
        line("limit", &format!("{name}: {}", limit_text(name, *limit)));
    }
    if let Some(kill) = &record.last_kill {
        line("last kill", &format!("{} at {}: {}", word(&kill.cause), rfc3339(kill.at), kill.detail));
    }
    for port in &record.ports {
        line("port", &format!("{} at {}:{}", port.guest, port.host, port.port));
    }
    for (key, value) in egress_lines(&record.egress, MAX_RULES) {
        line(key, &value);
    }
    if let Some(main) = &record.main {
        line("main", &main_text(main, now));
    }
    for volume in &record.volumes {
        line("volume", &format!("{} at {}", volume.name, volume.path));
    }
    text
}

/// A value after its key, on a line.
pub(super) fn key_line(key: &str, value: &str) -> String {
    format!("{key:<11} {}\n", escape(value))
}

fn main_text(main: &MainStatus, now: Timestamp) -> String {
    let mut text = format!("`{}` ", main.program);
    // Writing to a string can't fail.
    let _ = match (main.state, main.pid, main.exit, main.next_start) {
        (MainState::Running, Some(pid), ..) => write!(text, "runs as process {pid}"),
        (MainState::BackingOff, .., Some(at)) => {
            write!(text, "starts again in {}", distance(at.max(now), now))
        }
        (MainState::Exited, ..) => write!(text, "has ended"),
        (state, ..) => write!(text, "is {}", state.as_str()),
    };
    if let Some(exit) = main.exit {
        let _ = write!(text, ", last end: {exit}");
    }
    if main.restarts > 0 {
        let _ = write!(text, ", restarted {} times", main.restarts);
    }
    if let Some(problem) = &main.problem {
        let _ = write!(text, ", last start: {problem}");
    }
    let _ = write!(text, " (restart: {})", word(&main.restart));
    text
}

/// The limits of a sandbox as lines for a person.
pub(crate) fn limits(record: &SandboxRecord) -> String {
    let mut text = String::new();
    for (name, limit) in &record.limits {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{name:<8} {}", limit_text(name, *limit));
    }
    text
}

fn limit_text(name: &str, limit: Limit) -> String {
    let value = match (name, limit.value) {
        (_, None) => "none".to_owned(),
        ("memory" | "disk", Some(bytes)) => size(bytes),
        ("cpu", Some(millis)) => format!("{}.{:03} cores", millis / 1000, millis % 1000),
        (_, Some(value)) => value.to_string(),
    };
    let state = match limit.state {
        LimitState::Enforced => "enforced",
        LimitState::Watched => "watched",
        LimitState::None => "not enforced",
    };
    let hits = match limit.hits {
        Some(hits) if hits > 0 => format!(", hit {hits} times"),
        _ => String::new(),
    };
    format!("{value} ({state}{hits})")
}

/// Bytes in the largest unit that says it exactly.
fn size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift)) {
        Some((unit, shift)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// The word that JSON has for a value.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests;
