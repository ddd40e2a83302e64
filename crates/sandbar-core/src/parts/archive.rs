use async_trait::async_trait;
use serde::Serialize;

use crate::{ByteStream, GuestPath, Result};

/// Trees of files in and out, as tar streams.
#[async_trait]
pub trait Archive: Send + Sync {
    /// The tree at `path` as a tar stream rooted at its last segment. `/` is refused. Owners are left out; sockets, pipes and devices as well. The stream ends with
    /// the archive's end marker only when all before it is whole; else it ends with an error.
    async fn export(&self, path: &GuestPath) -> Result<ByteStream>;

    /// Unpacks a tar stream, which may be in gzip or zstd, below `path`, which is made where it does not exist. `/` is refused. It is all or nothing, also if the call is given up:
    /// what is cut short, even between two members, changes nothing. Folders that are there are merged, files replaced. Owners and privilege bits are not restored; members that leave
    /// `path` by their name or as a link, that are devices or pipes, or whose name begins with `-`, are refused.
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
