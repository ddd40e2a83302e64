//! Bytes between a command in a sandbox and this process' own descriptors: unchanged, at once, and never blocking the loop.

mod output;
mod source;

pub(crate) use output::{Output, Stream};
pub(crate) use source::Source;
