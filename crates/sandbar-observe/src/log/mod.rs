//! The file of the audit record: how it is opened, appended to by many processes at once, and rotated.

mod append;
mod config;
mod file;
mod lock;
mod rotate;

#[cfg(test)]
mod tests;

pub use append::AuditLog;
pub use config::{
    AuditConfig, AuditMode, DEFAULT_KEEP, DEFAULT_MAX_BYTES, MAX_KEEP, MAX_LINE, MIN_MAX_BYTES,
};
pub(crate) use lock::{Exclusive, Shared, is_in_place};
pub(crate) use rotate::older;
