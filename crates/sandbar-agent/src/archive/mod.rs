//! `/sandbar/archive`: trees in and out as tar streams.
//!
//! The work is done by a program of the user's own, this same file in another role: what an archive holds meets no rights but the user's, and a fault ends
//! that program alone (decision 0017). The agent only carries bytes between it and the connection.

mod export;
mod import;
mod merge;
mod outcome;
mod program;
mod role;
mod stage;

pub(crate) use export::export;
pub(crate) use import::import;
pub use role::archive_main;

/// `argv[0]` of the program.
pub const ARCHIVE_ROLE: &[u8] = b"sandbar-archive";
