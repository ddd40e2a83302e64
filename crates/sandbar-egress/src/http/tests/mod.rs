//! Real sockets: what a client inside sees, and what a host outside gets.

mod judged;
mod rig;
