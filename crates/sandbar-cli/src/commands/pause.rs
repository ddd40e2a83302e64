use sandbar::{HibernationOutcome, SandboxExt, SandboxId, SandboxProvider};
use serde_json::json;

use crate::commands::resolve::{absent, require};
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, print_json};

pub(crate) async fn pause(provider: &dyn SandboxProvider, id: &str, printer: Printer) -> Result<ExitStatus> {
    let sandbox = require(provider, id, "pause").await.map_err(absent)?;
    let pausing = sandbox.require_pausing()?;
    let outcome = printer.progress("putting it to sleep", pausing.hibernate()).await.map_err(absent)?;
    tell(sandbox.id(), &outcome, printer)
}

pub(crate) async fn resume(provider: &dyn SandboxProvider, id: &str, printer: Printer) -> Result<ExitStatus> {
    let sandbox = require(provider, id, "resume").await.map_err(absent)?;
    let pausing = sandbox.require_pausing()?;
    let outcome = printer.progress("waking it", pausing.resume()).await.map_err(absent)?;
    tell(sandbox.id(), &outcome, printer)
}

/// Nothing is said where all went as it should, unless JSON is asked for.
fn tell(id: &SandboxId, outcome: &HibernationOutcome, printer: Printer) -> Result<ExitStatus> {
    let HibernationOutcome { processes_preserved, mechanism, detail } = outcome;
    if printer.json() {
        print_json(&json!({
            "version": 1,
            "id": id,
            "processes_preserved": processes_preserved,
            "mechanism": mechanism,
            "detail": detail,
        }))?;
    } else if !processes_preserved {
        let why = detail.as_deref().unwrap_or("nothing more is known");
        printer.warn(&format!("its processes are not those from before: {why}"));
    }
    Ok(ExitStatus::Done)
}
