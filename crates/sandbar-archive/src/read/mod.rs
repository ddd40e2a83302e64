//! The bytes of an archive as members and their content.

mod header;
mod pax;
mod reader;

pub(crate) use header::{BLOCK, Kind, Member, padding};
pub(crate) use reader::Members;
