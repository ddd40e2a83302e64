use std::fs;

use serde_json::Value;

use super::column::{Column, Kind};
use super::scripts;

/// The columns of the table: every release of `interop/releases.json`, the newest first. The newest and the oldest are run in full.
pub(super) fn read() -> Result<Vec<Column>, String> {
    let path = scripts().join("releases.json");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let lists: Value = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut columns = Vec::new();
    for kind in Kind::ALL {
        let list = &lists[kind.list()];
        let package = list["package"]
            .as_str()
            .ok_or_else(|| format!("releases.json: `{}` has no package", kind.list()))?;
        let with = strings(&list["with"]);
        let releases = strings(&list["releases"]);
        for (index, release) in releases.iter().enumerate() {
            let is_edge = index == 0 || index + 1 == releases.len();
            // Names of a domain are the server's: one release shows them.
            if kind.is_domain() && index > 0 {
                continue;
            }
            for &way in kind.ways() {
                let (package, with, release) = (package.to_owned(), with.clone(), release.clone());
                columns.push(Column { kind, way, package, with, release, is_full: is_edge });
            }
        }
    }
    Ok(columns)
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|each| each.as_str().map(str::to_owned)).collect()
}
