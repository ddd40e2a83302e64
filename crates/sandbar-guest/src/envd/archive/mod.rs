//! Trees in and out: an agent without archives has files and commands, and both together do.

mod export;
mod import;
mod pieces;
mod source;

use async_trait::async_trait;
use sandbar_core::{Archive, ByteStream, GuestPath, ImportReport, Result};

use super::EnvdClient;

#[async_trait]
impl Archive for EnvdClient {
    /// What changes while it is packed is in the archive as it was read; a file that became shorter meanwhile is an error.
    async fn export(&self, path: &GuestPath) -> Result<ByteStream> {
        self.export_tree(path).await
    }

    async fn import(&self, path: &GuestPath, tar: ByteStream) -> Result<ImportReport> {
        self.import_tree(path, tar).await
    }
}
