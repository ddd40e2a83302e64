//! Connections of the sandbox.

mod accept;
mod control_page;
mod parting;
mod serve;
#[cfg(test)]
mod tests;

pub(crate) use accept::accept;
