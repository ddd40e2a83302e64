//! The client of the agent's control protocol. What the agent says is hostile: sizes, numbers and kinds are checked.

mod ask;
mod message;

pub(crate) use ask::{ask, checked_listeners, tell_shutdown};
pub(crate) use message::{Op, Outcome};
