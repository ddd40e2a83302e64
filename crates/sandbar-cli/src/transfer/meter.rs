use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far a copy has got, for whoever shows it. A clone counts for the same copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    /// Counts one more file, folder or link.
    pub(super) fn file(&self) {
        self.0.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes of content.
    pub(crate) fn bytes(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Files, folders and links so far.
    pub(crate) fn files_so_far(&self) -> u64 {
        self.0.files.load(Ordering::Relaxed)
    }

    /// Bytes so far.
    pub(crate) fn bytes_so_far(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }
}
