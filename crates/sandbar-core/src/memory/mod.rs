//! The reference backend: everything in memory, nothing runs for real.

mod commands;
mod create;
mod deadline;
mod disk;
mod fault;
mod files;
mod lifecycle;
mod machine;
mod main_command;
mod observe;
mod process;
mod processes;
mod program;
mod provider;
mod queue;
mod resources;
mod run;
mod sandbox;
mod shell;
mod store;
mod usage;
mod world;

pub use fault::Fault;
pub use program::{Program, ProgramContext};
pub use provider::{MemoryBuilder, MemoryProvider};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use shell::parse_script;
