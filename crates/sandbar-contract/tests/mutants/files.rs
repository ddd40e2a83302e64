use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use sandbar_core::{
    ByteStream, FileEntry, FileRead, Files, GuestPath, ListOptions, ReadOptions, Result, WriteOptions,
};

use crate::mutation::Mutation;
use crate::sandbox::MutantSandbox;

#[async_trait]
impl Files for MutantSandbox {
    async fn read_opts(&self, path: &GuestPath, mut options: ReadOptions) -> Result<FileRead> {
        if self.is(Mutation::IgnoresRange) {
            options.range = None;
        }
        self.inner.files().read_opts(path, options).await
    }

    async fn write_opts(
        &self,
        path: &GuestPath,
        mut body: ByteStream,
        options: WriteOptions,
    ) -> Result<FileEntry> {
        if !self.is(Mutation::KeepsHalfAFile) {
            return self.inner.files().write_opts(path, body, options).await;
        }
        let mut half = Vec::new();
        let mut broken = None;
        while let Some(chunk) = body.next().await {
            match chunk {
                Ok(chunk) => half.extend_from_slice(&chunk),
                Err(error) => broken = Some(error),
            }
        }
        let whole = stream::once(async move { Ok(Bytes::from(half)) }).boxed();
        let entry = self.inner.files().write_opts(path, whole, options).await?;
        broken.map_or(Ok(entry), Err)
    }

    async fn stat(&self, path: &GuestPath) -> Result<Option<FileEntry>> {
        match self.inner.files().stat(path).await {
            Err(_) if self.is(Mutation::FailedStatIsNone) => Ok(None),
            found => found,
        }
    }

    async fn list_opts(&self, path: &GuestPath, options: ListOptions) -> Result<Vec<FileEntry>> {
        match self.inner.files().list_opts(path, options).await {
            Err(_) if self.is(Mutation::MissingFolderIsEmpty) => Ok(Vec::new()),
            listed => listed,
        }
    }

    async fn make_dir(&self, path: &GuestPath) -> Result<bool> {
        self.inner.files().make_dir(path).await
    }

    async fn rename(&self, from: &GuestPath, to: &GuestPath) -> Result<FileEntry> {
        self.inner.files().rename(from, to).await
    }

    async fn remove(&self, path: &GuestPath) -> Result<bool> {
        Ok(self.inner.files().remove(path).await? || self.is(Mutation::RemoveIsAlwaysTrue))
    }
}
