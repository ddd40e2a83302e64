//! The egress gateway of a sandbox, outside it: answers its names with addresses that each stand for one name, judges every connection by the
//! policy, resolves and dials what is allowed itself, and tells what it decided.

mod dial;
pub mod http;
pub mod intercept;
pub mod peek;
mod ruling;

pub use dial::{DialError, Dialer};
pub use ruling::Ruling;
