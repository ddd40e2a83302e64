//! Sandboxes on E2B's cloud, or on any server that speaks its API.
//!
//! [`E2bConfig`] says where and with which key. What E2B calls a sandbox' metadata, lifecycle and network are the contract's labels, deadline and
//! egress policy here; what its API can't say is refused before anything is sent (decision 0020 in `docs/decisions`).

#![allow(dead_code, reason = "parts that are being built")]

mod config;
mod endpoint;
mod env;
mod secret;

pub use config::{DEFAULT_DOMAIN, DEFAULT_LIFETIME, DEFAULT_PREVIEW_PORT, DEFAULT_TEMPLATE, E2bConfig};
pub use secret::Secret;
