//! Emulated programs: the registry, the built-in set, and what a program sees of its sandbox.

mod basic;
mod context;
mod disk;
mod find;
mod registry;
mod stream;
mod test;

pub(super) use basic::kill;
pub use context::ProgramContext;
pub(super) use context::{Env, absolute};
pub(super) use find::{Executable, MAGIC};
pub use registry::Program;
pub(super) use registry::Registry;
pub(super) use test::evaluate;

use super::process::Broken;

/// How a built-in program ends: its exit code, or a reader that went away.
type Exit = Result<i32, Broken>;
