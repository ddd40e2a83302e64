//! What the agent finds at its start; the other half is the agent's own code.

use std::ffi::CStr;

/// `/dev/null`.
pub const NULL_FD: i32 = 0;
/// Where the agent's standard output goes: the log.
pub const LOG_OUT_FD: i32 = 1;
/// Where the agent's standard error goes: the log.
pub const LOG_FD: i32 = 2;
/// The sealed file with the agent's configuration.
pub const CONFIG_FD: i32 = 3;
/// The listener of the guest protocol (stream).
pub const AGENT_LISTENER_FD: i32 = 4;
/// The listener of the control protocol (sequenced packets).
pub const CTL_LISTENER_FD: i32 = 5;
/// The first of the network's sockets, [`network::SOCKETS`](crate::network::SOCKETS) of them in the order of
/// [`NetworkSockets::in_order`](crate::network::NetworkSockets::in_order), where the sandbox has a gateway.
pub const NETWORK_FD: i32 = 6;
/// The first descriptor that is never open.
pub const FIRST_CLOSED_FD: i32 = 26;
const _: () = assert!(FIRST_CLOSED_FD.abs_diff(NETWORK_FD) as usize == crate::network::SOCKETS);

/// Where the agent's own file is inside, on a read-only mount.
pub const AGENT_PATH: &str = "/run/sandbar/agent";
/// The agent's only argument; it chooses the role of the executable.
pub const AGENT_NAME: &CStr = c"sandbar-agent";
