//! The build file: what a template is built from, a step a line, as people write it.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod instruction;
mod lines;
mod words;

#[cfg(test)]
mod tests;

pub use instruction::{BuildFile, BuildInstruction, BuildLine};
pub use lines::MAX_BUILD_FILE;
