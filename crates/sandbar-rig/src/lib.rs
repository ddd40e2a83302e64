//! For tests of egress: an outside that is not the outside.
//!
//! `sandbar-rig run -- CMD` runs a command in a network namespace without an uplink. Its only way out leads to a second namespace, which
//! holds *every* address there is, answers on many ports and writes down all that arrives. So a leak is seen, and reaches nobody.
//!
//! ```no_run
//! use sandbar_rig::{Rig, inside};
//!
//! // A test, which does the same as root, as an ordinary user, and in a rig that it shares with others.
//! fn a_denied_name_is_not_asked_for() {
//!     inside("a_denied_name_is_not_asked_for", || {
//!         let rig = Rig::connect();
//!         let (name, address) = rig.host("denied");
//!         // … a sandbox that may not reach `name` tries to …
//!         assert!(rig.queries(&name).is_empty() && rig.arrivals(address.v4).is_empty());
//!     });
//! }
//! ```
//!
//! A test puts its body into [`inside`] and asks for the rig with [`Rig::connect`]. Tests share a rig: what they look for must be
//! theirs alone, so names come from [`Rig::unique`] and addresses from [`Rig::address`].

mod client;
mod env;
mod inside;
mod places;
pub mod wire;
mod zone;

pub use client::{Rig, RigAlone};
pub use env::FOLDER;
pub use inside::{TIED, inside};
pub use places::*;
pub use wire::{Address, Arrival, Connection, Query, Reach, Request};
pub use zone::Zone;
