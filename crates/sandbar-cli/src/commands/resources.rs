use sandbar::{LimitDemand, Resources, SandboxExt, SandboxProvider};
use serde_json::json;

use crate::commands::resolve::{absent, require};
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, limits, print_bytes, print_json};

pub(crate) async fn resources(
    provider: &dyn SandboxProvider,
    id: &str,
    change: Option<(Resources, LimitDemand)>,
    printer: Printer,
) -> Result<ExitStatus> {
    let sandbox = require(provider, id, "set resources").await.map_err(absent)?;
    if let Some((resources, demand)) = change {
        let changing = sandbox.require_resources()?.set_resources(resources, demand);
        printer.progress("changing limits", changing).await.map_err(absent)?;
    }
    let record = sandbox.record().await.map_err(absent)?;
    if printer.json() {
        print_json(&json!({"id": record.id, "limits": record.limits}))?;
    } else {
        print_bytes(limits(&record).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}
