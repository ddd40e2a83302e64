//! A provider over another, that tells what is done.

#![deny(
    clippy::missing_trait_methods,
    reason = "a part that the contract gains has to be decided on here, and is not left out silently"
)]

mod commands;
mod files;
mod observation;
mod operation;
mod parts;
mod processes;
mod provider;
mod sandbox;
mod store;

pub(crate) use observation::Target;
pub use observation::{Arguments, Observation};
pub(crate) use operation::Operation;
pub use operation::current_actor;
pub use provider::Observed;
pub(crate) use sandbox::ObservedSandbox;
