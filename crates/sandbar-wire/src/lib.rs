//! Wire types and codecs, shared by servers and clients. Nothing here does I/O.

pub mod e2b;
pub mod envd;
pub mod trust;

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
