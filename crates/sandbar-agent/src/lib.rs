//! The guest agent: PID 1 of a sandbox. It serves `envd`'s protocol on a socket that was made before the sandbox
//! existed, and a small control protocol for the host side.
//!
//! One thread does everything that doesn't block; file operations that may block run on a small pool that is empty
//! when idle. State is shared by reference counting within that thread.

mod archive;
mod blocking;
pub mod config;
mod control;
mod descriptor;
mod files;
mod filesystem;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod http;
mod log;
mod main_command;
mod paths;
mod processes;
mod quiet;
mod role;
mod rpc;
mod server;
mod state;
pub mod sudo;
mod trust;
mod users;
mod volatile;

pub use archive::{ARCHIVE_ROLE, archive_main};
pub use config::AgentConfig;
pub use role::{main_from_handover, sudo_main};
pub use server::{Listeners, Outcome, serve};
