//! The server: any backend answers E2B's API, so that the official SDKs work against it unmodified.
//!
//! One port serves three kinds of requests, told apart in [`dispatch`]: those for the guest of a sandbox (by routing headers or host name, the
//! guest's own protocol passed through), those for a port inside one, and the control plane. Wire types are `sandbar_wire::e2b`; what a
//! tenant may see is decided in one place, [`known`].

mod app;
mod builtin;
mod config;
mod control;
mod dispatch;
mod emulate;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guest;
mod known;
mod limits;
mod listen;
mod marks;
mod observe;
mod seal;
mod server;
mod store;
mod tenant;

pub use config::{
    CodeInterpreter, DEFAULT_BURST, DEFAULT_HEAD_LIMIT, DEFAULT_LONGEST_TIMEOUT, DEFAULT_REQUESTS_PER_SECOND,
    DEFAULT_SANDBOXES, DEFAULT_SLEEPING, DefaultEgress, Limits, PackageSet, ServerConfig, TlsFiles,
};
pub use server::Server;
pub use store::{Key, KeyStore, NewKey};
