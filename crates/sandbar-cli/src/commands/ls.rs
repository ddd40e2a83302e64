use jiff::Timestamp;
use sandbar::{ProviderExt, Query, SandboxProvider};

use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, RecordJson, print_bytes, print_json, table};

pub(crate) async fn ls(provider: &dyn SandboxProvider, query: Query, printer: Printer) -> Result<ExitStatus> {
    let mut records = printer.progress("listing sandboxes", provider.list_all(query)).await?;
    records.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    if printer.json() {
        print_json(&records.iter().map(RecordJson::from).collect::<Vec<_>>())?;
    } else {
        print_bytes(table(&records, Timestamp::now()).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}
