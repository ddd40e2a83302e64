use async_trait::async_trait;
use serde::Serialize;

use crate::{ByteStream, GuestPath, Result};

/// Trees of files in and out, as tar streams.
#[async_trait]
pub trait Archive: Send + Sync {
    /// The tree at `path` as a tar stream rooted at its last segment. `/` is refused.
    async fn export(&self, path: &GuestPath) -> Result<ByteStream>;

    /// Unpacks a tar stream below `path`, all or nothing. Owners and privilege bits are not restored; members that leave `path` are refused.
    async fn import(&self, path: &GuestPath, tar: ByteStream) -> Result<ImportReport>;
}

/// What an import brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Members unpacked.
    pub entries: u64,
    /// Bytes of file content.
    pub bytes: u64,
}
