use sandbar::{ErrorKind, LimitDemand, Resources, SandboxExt, SandboxProvider};
use serde_json::json;

use crate::commands::resolve::{absent, require};
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, limits, print_bytes, print_json};

pub(crate) async fn resources(
    provider: &dyn SandboxProvider,
    id: &str,
    change: Option<(Resources, LimitDemand)>,
    printer: Printer,
) -> Result<ExitStatus> {
    let operation = if change.is_some() { "set resources" } else { "show resources" };
    let sandbox = require(provider, id, operation).await.map_err(absent)?;
    if let Some((resources, demand)) = change {
        let changing = sandbox.require_resources()?.set_resources(resources, demand);
        let changed = printer.progress("changing limits", changing).await;
        changed.map_err(|error| match error.kind() {
            // What was typed can't be had; nothing was changed.
            ErrorKind::InvalidInput => Failure::usage(error),
            _ => absent(error),
        })?;
    }
    let record = sandbox.record().await.map_err(absent)?;
    if printer.json() {
        print_json(&json!({"version": 1, "id": record.id, "limits": record.limits}))?;
    } else {
        print_bytes(limits(&record).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}
