//! The commands, one a file: settings in, exit status out.

mod capacity;
mod create;
mod deadline;
mod describe;
mod destroy;
mod doctor;
mod exec;
mod interrupt;
mod logs;
mod ls;
mod make;
mod outcome;
mod port;
mod resolve;
mod resources;
mod run;
mod stats;
mod usage;
mod version;

pub(crate) use capacity::capacity;
pub(crate) use create::create;
pub(crate) use describe::describe;
pub(crate) use destroy::destroy;
pub(crate) use doctor::doctor;
pub(crate) use exec::exec;
pub(crate) use logs::logs;
pub(crate) use ls::ls;
pub(crate) use port::port;
pub(crate) use resources::resources;
pub(crate) use run::run;
pub(crate) use stats::stats;
pub(crate) use usage::usage;
pub(crate) use version::version;
