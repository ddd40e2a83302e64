//! Wire types and codecs, shared by servers and clients. Nothing here does I/O.

pub mod envd;
