//! Templates from snapshots of sandboxes, named by the caller's own ids.

mod name;
mod part;
mod usage;

pub(crate) use name::{bare_name, is_bare, template_part};
pub(crate) use usage::{Use, usage};
