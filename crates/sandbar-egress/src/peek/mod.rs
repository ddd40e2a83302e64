//! The first bytes of connections: what they are, and for whom.

mod alert;
mod chunks;
mod client_hello;
mod head;
mod hello;

pub use alert::Alert;
pub use chunks::Chunks;
pub use client_hello::{ClientHello, HelloFlaw, Peek};
pub use head::{Framing, Head, HeadFlaw, MAX_FIELDS, MAX_HEAD, check_head};
pub use hello::{PeekError, hello};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
