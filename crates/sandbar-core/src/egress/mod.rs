//! What a sandbox may reach: the policy, the names and addresses in it, and what was decided.

mod cidr;
mod decision;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod hostname;
mod injection;
mod parse;
mod pattern;
mod policy;
mod ports;
mod rule;
#[cfg(test)]
mod tests;

pub use cidr::Cidr;
pub use decision::{Decision, DecisionKind, DecisionReason, EgressCounters, Explanation, Verdict};
pub use hostname::Hostname;
pub use injection::HeaderInjection;
pub use pattern::NamePattern;
pub use policy::{EgressPolicy, EgressRules, MAX_RULES, Otherwise};
pub use ports::{PortSet, Protocol};
pub use rule::{DenyRule, Destination, EgressRule, Target};
