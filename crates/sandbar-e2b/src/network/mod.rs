//! The egress policy in E2B's words, and back.
//!
//! E2B allows by name at the ports of HTTP and HTTPS and by address at every port, denies by address, and lets an allowing rule win. What its
//! words can't say is refused by the rule, so that a sandbox never reaches more than it may.

mod part;
mod words;

pub(crate) use words::{read, words};
