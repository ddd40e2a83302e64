//! The conformance kit of the Sandbar contract.
//!
//! One named case per sentence of behaviour, such as `commands.non_zero_exit_is_data`. Any backend can run it: implement [`Harness`], call
//! [`run`], print the [`Report`]. A part that a backend lacks skips its cases with the backend's own reason. What a backend is known to do
//! otherwise stands in a file of [`Deviations`], and a deviation that is none any more fails the run.
//!
//! ```
//! use std::sync::Arc;
//! use sandbar_contract::{Harness, run};
//! use sandbar_core::{MemoryProvider, Result, SandboxProvider};
//!
//! struct Mine;
//!
//! #[async_trait::async_trait]
//! impl Harness for Mine {
//!     fn backend(&self) -> &'static str { "memory" }
//!     async fn provider(&self) -> Result<Arc<dyn SandboxProvider>> { Ok(Arc::new(MemoryProvider::new())) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let report = run(&Mine).await;
//! assert!(report.is_success(), "{report}");
//! # }
//! ```
//!
//! Cases use only what a POSIX shell and the usual small tools offer (`sh`, `cat`, `head`, `kill`, `ln`, `printf`, `sleep`, `wc` and their
//! kind), so that the reference backend can emulate them; one that needs more says so with a [`Feature`].

mod bed;
mod case;
mod cases;
mod check;
mod deviations;
mod harness;
mod report;
mod run;

pub use case::{Case, cases};
pub use deviations::{Deviation, Deviations, MalformedDeviation};
pub use harness::{Fault, Faulty, Feature, Harness};
pub use report::{CaseReport, Outcome, Report};
pub use run::{RunOptions, run, run_with};
