//! `verify_egress`: what can be reached from a sandbox made the ordinary way is tried, and nothing is taken on trust.

mod bytes;
mod check;
mod form;
mod hello;
mod host_post;
mod leg;
mod neighbour;
mod policy_view;
mod row;
mod run;
mod scorecard;
mod shown;
mod suite;
mod surroundings;
mod table;
#[cfg(test)]
mod tests;
mod verdict;

pub use scorecard::scorecard_document;
pub use suite::LeakSuite;
