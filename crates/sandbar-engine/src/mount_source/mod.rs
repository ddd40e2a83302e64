//! Checking what a person wants to mount from the host.
//!
//! A read-only mount still lets a process connect to a Unix socket in it, so a source that is or holds the control socket
//! of something powerful is refused unless it is allowed by name.

mod bound;
mod known;
mod open;
#[cfg(test)]
mod tests;
mod walk;

pub use open::{Allowed, open};
