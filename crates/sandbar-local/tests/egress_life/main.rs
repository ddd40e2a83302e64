//! Egress over the life of a sandbox: made, changed, taken over, crowded, flooded. Each test runs in a rig (see `sandbar_rig`).

mod support;

mod boot;
mod builds;
mod change;
mod crowd;
mod deaths;
mod disk;
mod flood;
mod kills;
mod kinds;
mod many;
mod secrets;
