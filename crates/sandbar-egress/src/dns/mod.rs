//! The resolver of the sandbox. Nothing that is asked here leaves the machine: names are resolved outside when they are connected to.

mod answer;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod responder;
mod sockets;
#[cfg(test)]
mod tests;

pub(crate) use responder::Responder;
pub(crate) use sockets::{serve_tcp, serve_udp};
