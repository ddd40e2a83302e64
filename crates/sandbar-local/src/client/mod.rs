//! The client of the guest agent: the parts of the contract over the sandbox' own socket.

mod archive;
mod body;
mod commands;
mod control;
mod entries;
mod fault;
mod files;
mod following;
mod forking;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod guest;
mod link;
mod main_command;
mod network;
mod once;
mod patience;
mod pausing;
mod pool;
mod processes;
mod resources;
mod rpc;
mod start;
mod watching;

pub(crate) use fault::{readable, rpc as start_fault};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzing::check_answers;
pub(crate) use link::Link;
pub(crate) use once::{Once, once};
pub(crate) use processes::Shared;
