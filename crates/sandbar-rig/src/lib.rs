//! For tests of egress: an outside that is not the outside.
//!
//! `sandbar-rig run -- CMD` runs a command in a network namespace without an uplink. Its only way out leads to a second namespace, which
//! holds *every* address there is, answers on many ports and writes down all that arrives. So a leak is seen, and reaches nobody.
//!
//! A test puts its body into [`inside`] and asks for the rig with [`Rig::connect`]. Tests share a rig: what they look for must be
//! theirs alone, so names come from [`Rig::unique`] and addresses from [`Rig::address`].

mod client;
mod inside;
mod places;
pub mod wire;
mod zone;

pub use client::{Rig, RigAlone};
pub use inside::{FOLDER, inside};
pub use places::*;
pub use wire::{Address, Arrival, Connection, Query, Request};
pub use zone::Zone;
