//! The client transport of backends whose sandboxes are elsewhere.
//!
//! A [`Client`] sends a [`Request`] and hands back what the server answered, whatever its status: as a whole, bounded ([`Client::send`]), or as a
//! stream ([`Client::open`]). Which statuses are errors is the backend's business. What happens here, in one place, is all between the two: what
//! is tried again and when, how fast one may ask, how long one waits, how much one holds, what is said when no answer came, and that no
//! credential is part of it. Why it is as it is: `docs/decisions/0019-client-transport.md`.

mod attempt;
mod call;
mod client;
mod config;
mod env;
mod fault;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod idempotency;
mod pace;
mod redact;
mod request;
mod response;
mod retry;
mod retry_after;
mod secret;
mod streamed;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod upload;
mod url;

pub use client::Client;
pub use config::{Config, Proxy};
pub use idempotency::Idempotency;
pub use pace::{Pace, Pacer};
pub use redact::{EXCERPT, HIDDEN, SHORTEST_SECRET};
pub use request::Request;
pub use response::{DEFAULT_BODY_LIMIT, Response};
pub use retry::RetryPolicy;
pub use secret::Secret;
pub use streamed::Streamed;

pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
