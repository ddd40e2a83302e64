//! From a [`crate::Spec`] to the ordered steps of a launch: pure data, nothing is touched.

mod base;
mod build;
mod finish;
mod kernel_files;
mod step;
#[cfg(test)]
mod tests;

pub use build::{Plan, plan};
pub(crate) use build::{STAGE_LAYERS, TreeMap, TreeOrigin};
pub(crate) use step::{Bind, Files, Presence, Source, Step, Target, When};
