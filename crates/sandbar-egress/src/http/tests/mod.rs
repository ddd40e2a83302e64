//! Real sockets: what a client inside sees, and what a host outside gets.

mod bodies;
mod clients;
mod judged;
mod rig;
mod smuggling;
mod upgrades;
