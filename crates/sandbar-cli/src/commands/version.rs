use serde_json::json;

use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, print_json, print_line};

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn version(printer: Printer) -> Result<ExitStatus> {
    if printer.json() {
        print_json(&json!({"version": VERSION}))?;
    } else {
        print_line(&format!("sandbar {VERSION}"))?;
    }
    Ok(ExitStatus::Done)
}
