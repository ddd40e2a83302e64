use jiff::Timestamp;
use sandbar::{SandboxRecord, VolumeInfo};
use serde::Serialize;
use serde_json::{Value, json};

use crate::output::columns;
use crate::output::record::key_line;
use crate::output::stats::short_size;
use crate::output::time::{distance, rfc3339};

/// The form of decision 0004.
#[derive(Debug, Serialize)]
pub(crate) struct VolumesJson {
    version: u32,
    volumes: Vec<Value>,
}

impl From<&[VolumeInfo]> for VolumesJson {
    fn from(infos: &[VolumeInfo]) -> Self {
        Self { version: 1, volumes: infos.iter().map(one).collect() }
    }
}

fn one(info: &VolumeInfo) -> Value {
    let VolumeInfo { name, attached, created_at, size_bytes } = info;
    json!({
        "name": name,
        "attached": attached,
        "created_at": created_at.map(rfc3339),
        "size_bytes": size_bytes,
    })
}

/// One volume with the sandboxes that hold it.
pub(crate) fn volume_json(info: &VolumeInfo, holders: &[SandboxRecord]) -> Value {
    let mut value = one(info);
    value["version"] = 1.into();
    let holders = holders.iter().flat_map(|record| {
        record.volumes.iter().filter(|volume| volume.name == info.name).map(|volume| {
            json!({"id": record.id, "name": record.name, "state": record.state.as_str(), "path": volume.path})
        })
    });
    value["sandboxes"] = holders.collect();
    value
}

/// Volumes as a table for a person.
pub(crate) fn volume_table(infos: &[VolumeInfo], now: Timestamp) -> String {
    let rows = infos.iter().map(|info| {
        [
            info.name.to_string(),
            info.size_bytes.map_or_else(|| "-".to_owned(), short_size),
            info.created_at.map_or_else(|| "-".to_owned(), |at| format!("{} ago", distance(at, now))),
            if info.attached { "yes" } else { "no" }.to_owned(),
        ]
    });
    columns(["NAME", "SIZE", "CREATED", "ATTACHED"], &rows.collect::<Vec<_>>())
}

/// A volume as lines for a person.
pub(crate) fn volume_text(info: &VolumeInfo, holders: &[SandboxRecord], now: Timestamp) -> String {
    let mut text = key_line("name", info.name.as_str());
    text += &key_line("size", &info.size_bytes.map_or_else(|| "unknown".to_owned(), short_size));
    if let Some(at) = info.created_at {
        text += &key_line("created", &format!("{} ({} ago)", rfc3339(at), distance(at, now)));
    }
    text += &key_line("attached", if info.attached { "yes" } else { "no" });
    for record in holders {
        for volume in record.volumes.iter().filter(|volume| volume.name == info.name) {
            let name = record.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
            text +=
                &key_line("sandbox", &format!("{}{name}, {}, at {}", record.id, record.state, volume.path));
        }
    }
    text
}
