//! The client of the guest protocol: the parts of the contract that a sandbox' own agent serves.
//!
//! [`GuestClient`] holds what every agent of the protocol has in common, and what Sandbar's adds. It reaches the agent through a [`Transport`], which
//! knows the way to one sandbox and what it means when that way is lost: the local backend's is a unix socket, a cloud's is HTTPS.

mod archive;
mod body;
mod client;
mod commands;
mod control;
mod entries;
mod envd;
mod fault;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod messages;
mod operation;
mod patience;
mod processes;
mod random;
mod rpc;
mod start;
mod transport;
mod upload;
mod watching;

pub use body::{BoxError, RequestBody, ResponseBody, whole};
pub use client::GuestClient;
pub use envd::{EnvdClient, EnvdVersion};
pub use fault::{nonsense, readable, rpc as refused};
pub use messages::{Messages, Next};
pub use operation::Operation;
pub use rpc::{CALL, request};
pub use start::{START, status_of};
pub use transport::{Failure, Reuse, Transport};
