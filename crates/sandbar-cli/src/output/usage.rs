use jiff::Timestamp;
use sandbar::{UsageEntry, UsageReport};
use serde::Serialize;
use serde_json::{Value, json};

use crate::output::columns;
use crate::output::stats::short_size;
use crate::output::time::{distance, rfc3339};

/// The form of decision 0004.
#[derive(Debug, Serialize)]
pub(crate) struct UsageJson {
    version: u32,
    sandboxes: Vec<Value>,
    unreadable: u64,
}

impl From<&UsageReport> for UsageJson {
    fn from(report: &UsageReport) -> Self {
        let sandboxes = report.entries.iter().map(one).collect();
        Self { version: UsageEntry::VERSION, sandboxes, unreadable: report.unreadable }
    }
}

fn one(entry: &UsageEntry) -> Value {
    let UsageEntry {
        version: _,
        id,
        name,
        created_at,
        started_at,
        ended_at,
        cause,
        wall_seconds,
        cpu_seconds,
        memory_peak_bytes,
        disk_bytes,
    } = entry;
    json!({
        "id": id,
        "name": name,
        "created_at": rfc3339(*created_at),
        "started_at": rfc3339(*started_at),
        "ended_at": rfc3339(*ended_at),
        "cause": cause,
        "wall_seconds": wall_seconds,
        "cpu_seconds": cpu_seconds,
        "memory_peak_bytes": memory_peak_bytes,
        "disk_bytes": disk_bytes,
    })
}

/// Ended sandboxes as a table for a person.
pub(crate) fn usage_table(report: &UsageReport, now: Timestamp) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rows = report.entries.iter().map(|entry| {
        [
            entry.id.to_string(),
            or_dash(entry.name.as_ref().map(ToString::to_string)),
            format!("{} ago", distance(entry.ended_at, now)),
            super::record::word(&entry.cause),
            format!("{:.1}s", entry.wall_seconds),
            or_dash(entry.cpu_seconds.map(|seconds| format!("{seconds:.2}s"))),
            or_dash(entry.memory_peak_bytes.map(short_size)),
            or_dash(entry.disk_bytes.map(short_size)),
        ]
    });
    columns(["ID", "NAME", "ENDED", "CAUSE", "LIVED", "CPU", "PEAK", "DISK"], &rows.collect::<Vec<_>>())
}
