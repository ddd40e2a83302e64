use sandbar::local::{DiskShare, DiskUsage, InitializedStore, Prunable, PruneMode, PruneReport};
use serde_json::{Value, json};

use crate::output::columns;
use crate::output::stats::short_size;

/// The parts of a data folder by their names, in the order of a table.
fn parts(usage: &DiskUsage) -> [(&'static str, DiskShare); 7] {
    let DiskUsage { sandboxes, layers, templates, volumes, logs, trash, pool } = *usage;
    [
        ("sandboxes", sandboxes),
        ("layers", layers),
        ("templates", templates),
        ("volumes", volumes),
        ("logs", logs),
        ("trash", trash),
        ("pool", pool),
    ]
}

/// The form of decision 0004.
pub(crate) fn disk_json(usage: &DiskUsage) -> Value {
    let parts =
        parts(usage).map(|(name, share)| json!({"name": name, "count": share.count, "bytes": share.bytes}));
    json!({"version": 1, "parts": parts})
}

/// A data folder as a table for a person.
pub(crate) fn disk_table(usage: &DiskUsage) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rows = parts(usage).map(|(name, share)| {
        [
            name.to_owned(),
            or_dash(share.count.map(|count| count.to_string())),
            or_dash(share.bytes.map(short_size)),
        ]
    });
    columns(["PART", "COUNT", "SIZE"], &rows)
}

/// The form of decision 0004.
pub(crate) fn store_json(store: &InitializedStore) -> Value {
    let InitializedStore { home, file, size_bytes } = store;
    json!({"version": 1, "home": home.to_string_lossy(), "file": file.to_string_lossy(), "size_bytes": size_bytes})
}

/// A store that was made, for a person.
pub(crate) fn store_text(store: &InitializedStore) -> String {
    let InitializedStore { home, file, size_bytes } = store;
    format!(
        "`{}` is a btrfs of at most {} now, in the file `{}`\n",
        home.display(),
        short_size(*size_bytes),
        file.display()
    )
}

/// The form of decision 0004.
pub(crate) fn prune_json(report: &PruneReport, mode: PruneMode) -> Value {
    let items = report.items.iter().map(|item| {
        let Prunable { kind, name, bytes, removed, problem } = item;
        json!({"kind": kind.as_str(), "name": name, "bytes": bytes, "removed": removed, "problem": problem})
    });
    json!({
        "version": 1,
        "removed": mode == PruneMode::Remove,
        "bytes": report.bytes(),
        "items": items.collect::<Vec<_>>(),
        "problems": report.problems,
    })
}

/// What can go or went as a table for a person, with a sum below.
pub(crate) fn prune_text(report: &PruneReport, mode: PruneMode) -> String {
    if report.items.is_empty() {
        return "nothing to remove\n".to_owned();
    }
    let rows = report.items.iter().map(|item| {
        let state = match (&item.problem, item.removed) {
            (Some(problem), _) => problem.clone(),
            (None, true) => "removed".to_owned(),
            (None, false) => "would be removed".to_owned(),
        };
        [
            item.kind.as_str().to_owned(),
            item.name.clone(),
            item.bytes.map_or_else(|| "-".to_owned(), short_size),
            state,
        ]
    });
    let table = columns(["KIND", "NAME", "SIZE", "STATE"], &rows.collect::<Vec<_>>());
    let went = report.items.iter().filter(|item| item.removed);
    let freed = went.clone().filter_map(|item| item.bytes).fold(0, u64::saturating_add);
    match mode {
        PruneMode::DryRun => {
            let bytes = short_size(report.bytes());
            format!("{table}{bytes} would be freed; `sandbar prune --force` does it\n")
        }
        PruneMode::Remove => {
            let count = went.count();
            let noun = if count == 1 { "thing" } else { "things" };
            format!("{table}{} freed, {count} {noun} removed\n", short_size(freed))
        }
    }
}
