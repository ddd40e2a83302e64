//! Observing what sandboxes reach, in one that is made the ordinary way.

mod legs;
mod part;
mod verdict;

pub(crate) use legs::{Leg, legs};
pub(crate) use verdict::{Seen, judge};
