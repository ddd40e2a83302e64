use sandbar::{ForkOptions, ForkOutcome, SandboxExt, SandboxProvider};
use serde_json::json;

use crate::commands::make::unmake;
use crate::commands::resolve::{absent, require};
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, print_json, print_line};
use crate::settings::ForkSettings;

pub(crate) async fn fork(
    provider: &dyn SandboxProvider,
    settings: ForkSettings,
    printer: Printer,
) -> Result<ExitStatus> {
    let ForkSettings { id, name, egress, volumes } = settings;
    let sandbox = require(provider, &id, "fork").await.map_err(absent)?;
    let forking = sandbox.require_forking()?;
    let options = ForkOptions { name, egress, volumes };
    let (copy, outcome) = printer.progress("copying it", forking.fork(options)).await.map_err(absent)?;
    let ForkOutcome { mechanism, copied_bytes, processes_preserved } = outcome;
    let told = if printer.json() {
        print_json(&json!({
            "version": 1,
            "id": copy.id(),
            "parent": sandbox.id(),
            "mechanism": mechanism,
            "copied_bytes": copied_bytes,
            "processes_preserved": processes_preserved,
        }))
    } else {
        print_line(copy.id().as_str())
    };
    if let Err(failure) = told {
        // Nobody would ever know its id.
        unmake(copy.as_ref(), printer).await?;
        return Err(failure);
    }
    Ok(ExitStatus::Done)
}
