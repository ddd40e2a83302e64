//! The egress gateway of a sandbox, outside it: answers its names with addresses that each stand for one name, judges every connection by the
//! policy, resolves and dials what is allowed itself, and tells what it decided.

mod address;
mod budget;
mod buffers;
mod connect;
mod control;
mod dial;
mod dns;
mod dontwait;
mod event;
mod flows;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gateway;
mod guest;
mod heartbeat;
pub mod http;
pub mod intercept;
mod judge;
mod limits;
mod names;
pub mod peek;
mod pool;
mod relay;
mod resolve;
mod ruling;
mod seams;
mod state;
mod tcp;
#[cfg(test)]
mod testing;
mod udp;

pub use address::{AddressClass, classify};
pub use control::{CONTROL_ADDRESS, CONTROL_BODY, CONTROL_NAME, GATEWAY_ADDRESS};
pub use dial::{DialError, Dialer};
pub use event::DecisionSink;
pub use gateway::{Gateway, Interception, Options, Sockets};
pub use judge::Judge;
pub use limits::Limits;
pub use names::Journal;
pub use pool::Assignment;
pub use ruling::Ruling;
