//! Plain HTTP, read message by message: each request is judged, and what goes out is written anew from what was read.

mod answer;
mod context;
mod forward;
mod guard;
mod request;
mod serve;
mod session;
mod upstream;
mod websocket;

pub(crate) use context::{ConnectError, Link, Transport};
pub use context::{HttpContext, HttpEvent, Stream};
pub(crate) use request::shown;
pub(crate) use serve::exchange;
pub use serve::serve;

#[cfg(test)]
mod tests;
