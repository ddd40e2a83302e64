use jiff::Timestamp;
use sandbar::{Error, SandboxProvider};

use crate::commands::resolve::resolve;
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, RecordJson, describe as to_text, print_bytes, print_json};

pub(crate) async fn describe(
    provider: &dyn SandboxProvider,
    id: &str,
    printer: Printer,
) -> Result<ExitStatus> {
    let found = async {
        match resolve(provider, id, "describe").await? {
            Some(id) => provider.describe(&id).await,
            None => Ok(None),
        }
    };
    let Some(record) = printer.progress("looking for the sandbox", found).await? else {
        let error = Error::not_found("describe", format!("sandbox `{id}`"));
        return Err(Failure::new(ExitStatus::Absent, error.with_hint("`sandbar ls` shows what exists")));
    };
    if printer.json() {
        print_json(&RecordJson::from(&record))?;
    } else {
        print_bytes(to_text(&record, Timestamp::now()).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}
