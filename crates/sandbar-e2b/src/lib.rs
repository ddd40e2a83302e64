//! Sandboxes on E2B's cloud, or on any server that speaks its API.
//!
//! [`E2bProvider`] is the backend, and [`E2bConfig`] says where it is and with which key. What E2B calls a sandbox' metadata, lifecycle and network
//! are the contract's labels, deadline and egress policy here; what its API can't say is refused before anything is sent (decision 0020 in
//! `docs/decisions`).
//!
//! Calls need a Tokio runtime with I/O and time enabled, as `#[tokio::main]` makes one.

mod access;
mod api;
mod config;
mod create;
mod deadline;
mod endpoint;
mod env;
mod error;
mod guest;
mod lease;
mod live;
mod marks;
mod metrics;
mod network;
mod pausing;
mod plan;
mod port_access;
mod provider;
mod record;
mod sandbox;
mod templates;
mod verify;
mod volumes;

pub use config::{DEFAULT_DOMAIN, DEFAULT_LIFETIME, DEFAULT_PREVIEW_PORT, DEFAULT_TEMPLATE, E2bConfig};
pub use port_access::{CODE_INTERPRETER_PORT, PortAccess};
pub use provider::E2bProvider;
pub use sandbox::E2bSandbox;
