//! Requests into sandboxes, and connections as such, against a real server over the local backend.

#[path = "../common/mod.rs"]
mod common;

mod connections;
mod envd;
mod hostile;
mod ports;
mod signed;
mod sleep;
mod tls;
