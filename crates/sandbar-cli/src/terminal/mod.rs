//! The caller's own terminal while a command in a sandbox has it: raw, followed when its size changes, and given back as it was.

mod keys;
mod modes;
mod raw;
mod screen;

pub(crate) use keys::{Key, Keys};
pub(crate) use modes::Modes;
pub(crate) use raw::restore;
pub(crate) use screen::{Screen, Told, is_terminal, size};
