//! Work on trees of files that somebody else made, by a process that has rights over those files alone (decision 0013).
//!
//! [`Worker::run`] starts the executable in this role with the ids of the store or of a sandbox mapped, an empty root, no network, and the descriptors of
//! one job. What it reads, archives and names that nobody has to trust, meets no other rights. It takes its job from its standard input, a line of JSON, and answers
//! with lines of JSON. It ends with whoever started it.

mod accounts;
mod client;
mod job;
mod role;
mod serve;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use client::{Cancel, Task, Worker};
pub(crate) use job::{Job, PackIds, Report, UnpackIds};
pub use role::worker_main;
pub(crate) use serve::hex;
