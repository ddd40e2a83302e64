//! What the policy says: compiled, so that many rules cost as much as few.

mod compiled;
mod names;
#[cfg(test)]
mod oracle;
mod ports;
mod ranges;
#[cfg(test)]
mod tests;

pub use compiled::Judge;
pub(crate) use compiled::{NameRuling, Spelled};
