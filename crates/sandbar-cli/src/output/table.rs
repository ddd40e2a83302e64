use jiff::Timestamp;
use sandbar::SandboxRecord;

use crate::output::columns;
use crate::output::time::distance;

const HEADINGS: [&str; 7] = ["ID", "NAME", "STATE", "TEMPLATE", "CREATED", "ENDS IN", "LABELS"];

/// Records as a table for a person.
pub(crate) fn table(records: &[SandboxRecord], now: Timestamp) -> String {
    let rows: Vec<_> = records.iter().map(|record| row(record, now)).collect();
    columns(HEADINGS, &rows)
}

fn row(record: &SandboxRecord, now: Timestamp) -> [String; HEADINGS.len()] {
    let or_dash = |text: Option<&str>| text.map_or("-".to_owned(), str::to_owned);
    let labels: Vec<_> = record.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    [
        record.id.to_string(),
        or_dash(record.name.as_ref().map(AsRef::as_ref)),
        record.state.to_string(),
        or_dash(record.template.as_deref()),
        or_dash(record.created_at.map(|at| format!("{} ago", distance(at, now))).as_deref()),
        match record.deadline {
            None => "never".to_owned(),
            Some(at) if at <= now => "now".to_owned(),
            Some(at) => distance(at, now),
        },
        labels.join(","),
    ]
}
