//! The parts of the contract over the sandbox' own sockets: what its agent serves by the [guest protocol's client](sandbar_guest), the rest by its shim.

mod following;
mod forking;
mod guest;
mod link;
mod main_command;
mod network;
mod once;
mod pausing;
mod pool;
mod resources;
mod transport;

pub(crate) use link::Link;
pub(crate) use once::{Once, once};

/// Handles that outlive the call share the link.
#[derive(Debug)]
pub(crate) struct Shared(pub(crate) std::sync::Arc<Link>);
