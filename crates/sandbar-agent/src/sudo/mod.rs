//! `sudo` without a setuid bit: a small program asks the agent over a socket to start a command as another user of
//! the sandbox, with the program's own standard descriptors.

pub mod client;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod message;
mod parse;
mod server;

pub(crate) use server::serve;
