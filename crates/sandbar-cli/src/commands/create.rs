use sandbar::{CreateOptions, SandboxProvider};
use serde_json::json;

use crate::commands::make::{make, unmake};
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, RecordJson, print_json, print_line};
use crate::signals::Signals;

pub(crate) async fn create(
    provider: &dyn SandboxProvider,
    options: CreateOptions,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let sandbox = make(provider, options, printer, &mut signals).await?;
    let told = if printer.json() {
        match sandbox.record().await {
            Ok(record) => print_json(&RecordJson::from(&record)),
            // It is there, and its id is what counts.
            Err(error) => {
                printer.error(&error);
                print_json(&json!({"id": sandbox.id()}))
            }
        }
    } else {
        print_line(sandbox.id().as_str())
    };
    if let Err(failure) = told {
        // Nobody would ever know its id.
        unmake(sandbox.as_ref(), printer).await?;
        return Err(failure);
    }
    Ok(ExitStatus::Done)
}
