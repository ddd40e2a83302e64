//! What can be reached from a sandbox: tried in a rig, whose records say what arrived.

mod bed;
mod full;

mod dns;
mod http;
mod kernel;
mod leaks;
mod scorecard;
mod state;
mod verify;
