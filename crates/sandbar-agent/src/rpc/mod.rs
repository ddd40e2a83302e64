//! The Connect services.

mod call;
mod dispatch;
mod filesystem;
mod process;

pub(crate) use dispatch::dispatch;
