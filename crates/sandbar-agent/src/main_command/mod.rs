//! The main command: started with the sandbox, started again as its policy says, and what it said kept within bounds.
//!
//! All of it is here and not in the host's process: it goes on in the same way while that is dead.

mod answer;
mod backoff;
mod output;
mod ring;
mod status;
mod supervise;

pub(crate) use answer::answer;
pub(crate) use status::Main;
pub(crate) use supervise::supervise;
