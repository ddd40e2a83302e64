//! Linux isolation for Sandbar.
//!
//! Synchronous on purpose: a sandbox is launched by a process with one thread, so that `clone` is safe.

pub mod process;
