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
pub(crate) use rows::{BuildRow, BuildStatus, Found, Kind, SnapshotRow, TagRow, TemplateRow};
pub(super) use schema::MIGRATION;
pub(crate) use tags::Removal;
