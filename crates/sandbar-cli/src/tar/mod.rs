//! The tar format, as much of it as passes between this process and `tar` in a sandbox: no I/O, and bounded, since what a sandbox sends is
//! hostile.
//!
//! Own code because the common crate reads long names of any length into memory.

mod decode;
mod encode;
mod header;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use decode::fuzzing;
pub(crate) use decode::{Decoder, Item};
pub(crate) use encode::{END, encode, padding};
pub(crate) use header::{Kind, Member, TarError};
