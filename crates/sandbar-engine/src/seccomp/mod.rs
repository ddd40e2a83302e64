//! The system call filter: which calls a sandbox may make, and what the others answer. It kills nothing, ever.

mod assemble;
mod calls;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
#[cfg(any(test, feature = "fuzzing"))]
mod interpret;
mod policy;
#[cfg(test)]
mod tests;

pub(crate) use assemble::{Instruction, program};
pub(crate) use policy::SetidBits;
