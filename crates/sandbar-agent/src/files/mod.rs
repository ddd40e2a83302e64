//! `/files`: downloads, uploads, and joining uploaded parts.

mod access;
mod compose;
mod download;
mod encoding;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod multipart;
mod range;
mod upload;
mod write;

pub(crate) use access::{Access, Query};
pub(crate) use compose::compose;
pub(crate) use download::download;
pub(crate) use upload::upload;
