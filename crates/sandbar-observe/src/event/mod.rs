//! The lines of the audit record.

mod actor;
mod bounded;
pub mod details;
mod json;
mod line;

pub use actor::{Actor, Role};
pub(crate) use json::to_line;
pub use json::{is_dangerous, to_safe_json};
pub(crate) use line::now;
pub use line::{Event, FORMAT_VERSION, Outcome, Phase};
