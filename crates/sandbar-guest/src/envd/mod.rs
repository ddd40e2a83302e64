//! The parts of the contract over an agent that is not Sandbar's own: E2B's `envd`, of any version, behind whatever stands before it.
//!
//! What that agent does not do is done otherwise, by small scripts that run inside like any other command, or refused by name: it says that a process ended
//! only when nobody holds its output any more, signals one process and not those that it started, leaves half a file behind where an upload breaks off,
//! and has no archives. Nothing here uses Sandbar's extensions of the protocol; where an answer has them, they are read.

mod archive;
mod cleanup;
mod client;
mod commands;
mod control;
mod files;
mod followed;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod listing;
mod liveness;
mod processes;
mod refusal;
mod script;
mod settle;
mod signal;
mod table;
mod version;
mod watching;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzing::check_script_output;

pub use client::EnvdClient;
pub use version::EnvdVersion;
