//! The product from outside: the real executable, real sandboxes, programs inside that try what an attacker or a user would.
//!
//! Run as whoever runs the tests; `cargo xtask test` runs them as root and as an ordinary user in both id modes.

mod harness;
mod isolation;
mod limits;
mod network;
mod secrets;
mod workloads;
