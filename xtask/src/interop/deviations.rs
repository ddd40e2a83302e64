use std::fs;

use serde_json::Value;

use super::column::Column;
use super::scripts;

/// What is known not to pass, with the reason. A case that passes all the same is a fault: then its line goes.
#[derive(Debug)]
pub(super) struct Deviations(Vec<Deviation>);

#[derive(Debug)]
struct Deviation {
    case: String,
    /// A part of the names of the columns that it is about; all if absent.
    column: Option<String>,
    why: String,
}

/// Reads `interop/deviations.json`: a list of `{case, column?, why}`.
pub(super) fn read() -> Result<Deviations, String> {
    let path = scripts().join("deviations.json");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let list: Vec<Value> = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let parse = |each: &Value| {
        let text = |key: &str| each[key].as_str().map(str::to_owned);
        let missing = |key: &str| format!("{}: a deviation has no `{key}`: {each}", path.display());
        Ok(Deviation {
            case: text("case").ok_or_else(|| missing("case"))?,
            column: text("column"),
            why: text("why").ok_or_else(|| missing("why"))?,
        })
    };
    list.iter().map(parse).collect::<Result<_, String>>().map(Deviations)
}

impl Deviations {
    /// Why a case does not pass in a column, if that is known.
    pub(super) fn of(&self, column: &Column, case: &str) -> Option<&str> {
        let name = column.name();
        let is_it = |each: &&Deviation| {
            each.case == case && each.column.as_deref().is_none_or(|part| name.contains(part))
        };
        self.0.iter().find(is_it).map(|each| each.why.as_str())
    }

    /// Case, part of the columns' names, and reason of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>, &str)> {
        self.0.iter().map(|each| (each.case.as_str(), each.column.as_deref(), each.why.as_str()))
    }
}
