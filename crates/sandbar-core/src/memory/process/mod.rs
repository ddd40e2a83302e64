//! Emulated processes: tasks with a number, three streams, a family, and an end that is data.

mod freeze;
mod launch;
mod pipe;
mod streams;
mod table;

pub(super) use freeze::Freezer;
pub(super) use launch::{Launch, Launched, NotStarted};
pub(super) use pipe::{PipeReader, PipeWriter, pipe};
pub(super) use streams::{Broken, Content, Input, Output, Streams};
pub(super) use table::{Ended, Entry, Pid, ProcessTable};
