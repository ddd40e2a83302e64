//! From a [`crate::Spec`] to the ordered steps of a launch: pure data, nothing is touched.

mod base;
mod build;
mod counted;
mod finish;
mod ipc;
mod kernel_files;
mod network;
mod packet_filter;
mod step;
#[cfg(test)]
mod tests;
mod trial;

pub(crate) use base::OOM_SCORE;
pub use build::{Plan, plan};
pub(crate) use build::{STAGE_LAYERS, TreeMap, TreeOrigin};
pub(crate) use step::{Bind, Limited, Presence, Source, Step, Target};
pub(crate) use trial::{Trial, trial};
