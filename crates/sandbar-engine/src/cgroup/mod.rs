//! Control groups: what this machine offers, and one group per sandbox in each hierarchy that is of use.

mod control;
mod create;
mod layout;
mod stats;

pub use create::Cgroup;
pub use layout::{Controller, Lack, Layout};
pub use stats::{Events, Stats};
