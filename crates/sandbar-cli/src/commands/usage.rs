use jiff::Timestamp;
use sandbar::{Error, ProviderExt, SandboxProvider};

use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, UsageJson, print_bytes, print_json, usage_table};

pub(crate) async fn usage(
    provider: &dyn SandboxProvider,
    id: Option<&str>,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut report = printer.progress("reading", provider.require_usage()?.ended(None)).await?;
    if let Some(id) = id {
        report.entries.retain(|entry| {
            entry.id.as_str() == id || entry.name.as_ref().is_some_and(|name| name.as_str() == id)
        });
        if report.entries.is_empty() {
            let error = Error::not_found("read usage", format!("an ended sandbox `{id}`"))
                .with_hint("`sandbar usage` shows those that are known; of one that lives, `sandbar stats` shows the use");
            return Err(Failure::new(ExitStatus::Absent, error));
        }
    }
    if printer.json() {
        print_json(&UsageJson::from(&report))?;
    } else {
        print_bytes(usage_table(&report, Timestamp::now()).as_bytes())?;
    }
    if report.unreadable > 0 {
        printer.warn(&format!("{} entries could not be read", report.unreadable));
    }
    Ok(ExitStatus::Done)
}
