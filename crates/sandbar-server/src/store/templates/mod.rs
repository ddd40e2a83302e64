//! Templates of tenants: their names, tags and builds. The templates themselves are the provider's.

mod builds;
mod find;
mod list;
mod logs;
mod rows;
mod schema;
mod tags;

pub(crate) use builds::{Finished, Registration};
pub(crate) use list::SnapshotQuery;
pub(crate) use logs::{Level, LogQuery, LogRow};
pub(crate) use rows::{BuildRow, BuildStatus, Kind, SnapshotRow, TagRow, TemplateRow};
pub(super) use schema::MIGRATION;
pub(crate) use tags::Removal;

/// The time as the store has it: in a form of one length, so that texts are in the order of times.
pub(crate) fn stored_time(at: jiff::Timestamp) -> String {
    format!("{at:.6}")
}

fn now() -> String {
    stored_time(jiff::Timestamp::now())
}

#[cfg(test)]
mod tests;
