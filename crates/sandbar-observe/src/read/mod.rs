//! Reading the audit record, oldest first, across its files and while it is written.

mod line;
mod reader;

#[cfg(test)]
mod tests;

pub use line::Line;
pub use reader::AuditReader;
