//! The client of the agent's control protocol. What the agent says is hostile: sizes, numbers and kinds are checked.

mod ask;
mod main_command;
mod message;

pub(crate) use ask::{ask, ask_main, checked_listeners, checked_network, tell_shutdown};
pub(crate) use main_command::{MainAnswer, Phase, Piece};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use message::check_answer;
pub(crate) use message::{Op, Outcome};
