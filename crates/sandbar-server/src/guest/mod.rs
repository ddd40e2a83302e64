//! Requests for what is inside a sandbox: its guest's own API, and its ports.
//!
//! A request is routed by its head ([`Names::route`]), let in by tokens of the sandbox' own ([`admit`]), and passed on as it is over a
//! connection into the sandbox ([`exchange`]). What was learned of a sandbox is kept ([`Resident`]): a request to one that was seen running a
//! moment ago asks the backend nothing.

mod admit;
mod body;
mod exchange;
mod guests;
mod headers;
mod host;
mod pool;
mod problem;
mod resident;
mod route;
mod tunnel;
mod wake;

pub(crate) use exchange::SILENCE;
pub(crate) use guests::{Guests, serve, serve_signed};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use route::{ID_HEADER, PORT_HEADER};
pub(crate) use route::{Names, Route, authority};
