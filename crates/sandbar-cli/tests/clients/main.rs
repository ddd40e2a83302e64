//! Programs as they are, in sandboxes that may reach something: what is allowed works as it does without a gateway, and what is not ends at once, with the reason.
//!
//! The outside is a rig's (`sandbar-rig`): no packet leaves this machine.

#[expect(dead_code, reason = "the other tests of the executable use the rest")]
#[path = "../cli/harness.rs"]
mod harness;

mod curl;
mod inside;
mod interception;
mod node;
mod packages;
mod python;
mod repository;
mod traffic;
mod websocket;
mod wget;
