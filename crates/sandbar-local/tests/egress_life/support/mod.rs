//! A data folder in a rig, and programs that try to get out.

mod inside;
mod scene;

pub(crate) use inside::{Client, Tries, prelude};
pub(crate) use scene::{Scene, end_shim, eventually, helper, rules_of, scene, shim_pid, size};
