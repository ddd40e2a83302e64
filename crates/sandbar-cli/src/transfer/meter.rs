use std::cell::Cell;

/// How far a copy has got, for whoever shows it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    files: Cell<u64>,
    bytes: Cell<u64>,
}

impl Meter {
    /// Counts one more file, folder or link.
    pub(super) fn file(&self) {
        self.files.set(self.files.get() + 1);
    }

    /// Counts bytes of content.
    pub(super) fn bytes(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// Files, folders and links so far.
    pub(crate) fn files_so_far(&self) -> u64 {
        self.files.get()
    }

    /// Bytes so far.
    pub(crate) fn bytes_so_far(&self) -> u64 {
        self.bytes.get()
    }
}
