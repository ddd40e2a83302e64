//! The backend against our own server over the local backend, both in this process: real sandboxes, real commands, real HTTP.

mod conformance;
mod lifecycle;
mod rig;
