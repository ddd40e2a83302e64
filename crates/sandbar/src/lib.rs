//! Run code that nobody should trust.
//!
//! [`connect`] names the place; everything else is the contract, re-exported from `sandbar-core`, and the same everywhere.
//!
//! ```no_run
//! use sandbar::{Command, CreateOptions, Lifetime};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> sandbar::Result<()> {
//! let provider = sandbar::connect("local:")?;
//! let sandbox = provider.create(CreateOptions::new().with_lifetime(Lifetime::Owned)).await?;
//! let output = sandbox.commands().run(&Command::new("python3").arg("-c").arg("print(6 * 7)")).await?;
//! assert!(output.status.is_success());
//! assert_eq!(output.stdout_lossy(), "42\n");
//! sandbox.destroy().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Calls need a Tokio runtime with I/O and time enabled, as `#[tokio::main]` makes one.
//!
//! # Features
//! - `local` (default): sandboxes on this Linux machine. Needs the `sandbar` executable beside the caller's, in `PATH`, or in
//!   `$SANDBAR_HELPER`: it plays the host process of each sandbox and the first process in it.
//! - `e2b`: sandboxes on E2B's cloud, or on a server that speaks its API. Needs an account's key in `$E2B_API_KEY`.
//! - `otlp`: [`observe::otlp`], spans to an OpenTelemetry collector.

pub mod build;
mod connect;

pub use connect::{connect, connect_observed};
pub use sandbar_core::*;

#[cfg(feature = "e2b")]
pub use sandbar_e2b as e2b;
#[cfg(feature = "local")]
pub use sandbar_local as local;
pub use sandbar_observe as observe;

/// What the README shows has to compile.
#[cfg(all(doctest, feature = "local"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
