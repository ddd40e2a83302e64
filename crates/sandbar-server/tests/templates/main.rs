//! Templates, snapshots and volumes, over the real local backend.

mod builds;
#[path = "../common/mod.rs"]
mod common;
mod names;
mod snapshots;
mod support;
mod volumes;
