use std::path::{Path, PathBuf};

use sandbar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Longest line of the record in bytes, its end included.
pub const MAX_LINE: usize = 64 << 10;
/// Size at which a file makes way for a new one unless told otherwise: some 30,000 operations.
pub const DEFAULT_MAX_BYTES: u64 = 16 << 20;
/// Least size to make way at: less would hold too few lines to be worth a file.
pub const MIN_MAX_BYTES: u64 = MAX_LINE as u64;
/// Older files kept unless told otherwise, beside the one that is written to.
pub const DEFAULT_KEEP: u32 = 8;
/// Most older files kept: each is renamed when one makes way.
pub const MAX_KEEP: u32 = 1000;

/// Where the audit record is and how much is kept of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditConfig {
    /// The file that is written to. Older ones have `.1` (the latest) to `.N` behind their name.
    pub path: PathBuf,
    /// What happens to an operation that can't be recorded.
    #[serde(default)]
    pub mode: AuditMode,
    /// Size in bytes at which the file makes way for a new one.
    #[serde(default = "default_max_bytes")]
    pub max_bytes: u64,
    /// How many older files are kept.
    #[serde(default = "default_keep")]
    pub keep: u32,
}

/// What happens to an operation that can't be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditMode {
    /// It is refused before any effect. Only the end of a sandbox never is.
    #[default]
    Required,
    /// It is done, and the loss is counted.
    BestEffort,
}

impl AuditConfig {
    /// In the file at `path`, which is absolute; the rest by default.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            mode: AuditMode::default(),
            max_bytes: DEFAULT_MAX_BYTES,
            keep: DEFAULT_KEEP,
        }
    }

    /// Sets what happens to an operation that can't be recorded.
    pub fn with_mode(mut self, mode: AuditMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the size in bytes at which the file makes way for a new one.
    pub fn with_max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets how many older files are kept.
    pub fn with_keep(mut self, files: u32) -> Self {
        self.keep = files;
        self
    }

    /// Refuses what can't be meant.
    pub fn check(&self) -> Result<()> {
        let complain = |why: String| Err(Error::invalid("open audit record", why));
        if !self.path.is_absolute() || self.path.file_name().is_none() {
            return complain(format!(
                "`{}` is not valid: expected the absolute path of a file",
                self.path.display()
            ));
        }
        if self.path.to_str().is_none_or(|path| path.contains('\0')) {
            return complain(format!("`{}` is not valid: expected UTF-8 without NUL", self.path.display()));
        }
        if self.max_bytes < MIN_MAX_BYTES {
            return complain(format!(
                "a size of {} bytes is not valid: expected at least {MIN_MAX_BYTES}, the longest line",
                self.max_bytes
            ));
        }
        if !(1..=MAX_KEEP).contains(&self.keep) {
            return complain(format!(
                "{} older files are not valid: expected 1 to {MAX_KEEP}, or each new file would lose what was written",
                self.keep
            ));
        }
        Ok(())
    }

    /// The folder that holds the files.
    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

/// Why the record can't be written, with the way out.
pub(super) fn unwritable(path: &Path, cause: std::io::Error) -> Error {
    let kind = match cause.kind() {
        std::io::ErrorKind::TimedOut => ErrorKind::Timeout,
        std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        std::io::ErrorKind::StorageFull
        | std::io::ErrorKind::QuotaExceeded
        | std::io::ErrorKind::FileTooLarge => ErrorKind::LimitExceeded,
        _ => ErrorKind::Config,
    };
    let message = format!("`{}` can't be written: {cause}", path.display());
    Error::new(kind, "audit", message)
        .with_resource("audit record")
        .with_hint("mend that, or name another file; with `best-effort` operations go on without a record")
        .with_source(cause)
}

fn default_max_bytes() -> u64 {
    DEFAULT_MAX_BYTES
}

fn default_keep() -> u32 {
    DEFAULT_KEEP
}
