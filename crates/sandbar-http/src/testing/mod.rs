//! For the tests of backends: a server that says what it is told to, and a proxy that does to a real server's answers what networks do.
//!
//! [`Scripted`] stands for a server that can't be had, or counts what is asked of it; it keeps every request whole, so that a test can look for a
//! credential in all that was sent. [`FaultProxy`] stands between a real client and a real server and passes everything through, both
//! ways, until a [`Rule`] with a [`Fault`] says otherwise. Both speak HTTP/1.1 on loopback and end with their value.

mod answer;
mod body;
mod fault;
mod line;
mod proxy;
mod recorded;
mod rule;
mod scripted;
mod serve;
mod upstream;

pub use answer::Answer;
pub use fault::{Fault, Then, Where};
pub use proxy::{FaultProxy, Injected};
pub use recorded::Recorded;
pub use rule::Rule;
pub use scripted::Scripted;
