//! Commands: started, followed, fed, signalled, ended.

mod end;
mod input;
mod launch;
mod process;
mod pump;
mod queue;
mod registry;
mod start;
mod supervise;
mod table;

pub(crate) use launch::Command;
pub(crate) use process::Process;
pub(crate) use queue::{FrameBody, Pace, Queue};
pub(crate) use registry::{Found, Registry};
pub(crate) use start::{next_event, start};
pub(crate) use supervise::end_orphans;
pub(crate) use table::{list_all, signal_any};
