//! The shim: one small host process for each sandbox. It makes the sandbox, watches over it, and takes it down.

mod adopt;
mod agent;
pub(crate) mod copy;
mod create;
mod disk;
mod egress;
mod fork;
mod guard;
mod hold;
pub(crate) mod kept;
mod limits;
mod listener;
mod log;
mod main;
mod main_command;
mod memory;
mod pipes;
mod ports;
mod prepare;
mod processes;
pub(crate) mod protocol;
mod ready;
mod resize;
mod serve;
mod shared;
mod sleep;
mod start;
mod subvolume;
mod usage;

pub(crate) use agent::{AGENT_SOCKET, CTL_SOCKET};
pub use main::shim_main;

/// The socket that a shim serves, in the sandbox' folder.
pub(crate) const SHIM_SOCKET: &str = "shim.sock";
