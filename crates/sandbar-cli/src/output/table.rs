use std::fmt::Write;

use jiff::Timestamp;
use sandbar::SandboxRecord;

use crate::output::escape;
use crate::output::time::distance;

const HEADINGS: [&str; 7] = ["ID", "NAME", "STATE", "TEMPLATE", "CREATED", "ENDS IN", "LABELS"];

/// Records as a table for a person.
pub(crate) fn table(records: &[SandboxRecord], now: Timestamp) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(records.iter().map(|record| row(record, now)));
    let mut widths = [0; HEADINGS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string can't fail.
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn row(record: &SandboxRecord, now: Timestamp) -> [String; HEADINGS.len()] {
    let or_dash = |text: Option<&str>| text.map_or("-".to_owned(), |text| escape(text).into_owned());
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
        escape(&labels.join(",")).into_owned(),
    ]
}
