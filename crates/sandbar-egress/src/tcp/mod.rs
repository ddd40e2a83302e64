//! Connections of the sandbox.

mod accept;
mod control_page;
mod parting;
mod serve;

pub(crate) use accept::accept;
