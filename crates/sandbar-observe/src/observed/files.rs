use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, Stream};
use sandbar_core::{
    ByteStream, FileEntry, FileRead, Files, GuestPath, ListOptions, ReadOptions, Result, WriteOptions,
};
use serde_json::{Map, Value};

use super::{ObservedSandbox, Operation};
use crate::event::details;

#[async_trait]
impl Files for ObservedSandbox {
    async fn read_opts(&self, path: &GuestPath, options: ReadOptions) -> Result<FileRead> {
        let operation = self
            .begin("read", |detail| {
                at(path, detail);
                if let Some(range) = options.range {
                    detail.insert("start".into(), range.start.into());
                    detail.insert("length".into(), range.length.into());
                }
            })
            .await?;
        match operation.cause(self.inner.files().read_opts(path, options)).await {
            Ok(FileRead { body, length }) => Ok(FileRead { body: told(body, operation, Bytes::len), length }),
            Err(error) => operation.end(Err(error)).await,
        }
    }

    async fn write_opts(
        &self,
        path: &GuestPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<FileEntry> {
        let mut operation = self.begin("write", |detail| at(path, detail)).await?;
        let done = operation.cause(self.inner.files().write_opts(path, body, options)).await;
        if let Ok(entry) = &done {
            operation.detail("bytes", entry.size);
        }
        operation.end(done).await
    }

    async fn stat(&self, path: &GuestPath) -> Result<Option<FileEntry>> {
        let mut operation = self.begin("stat", |detail| at(path, detail)).await?;
        let found = operation.cause(self.inner.files().stat(path)).await;
        if let Ok(entry) = &found {
            operation.detail("exists", entry.is_some());
        }
        operation.end(found).await
    }

    async fn list_opts(&self, path: &GuestPath, options: ListOptions) -> Result<Vec<FileEntry>> {
        let mut operation = self
            .begin("list", |detail| {
                at(path, detail);
                detail.insert("depth".into(), options.depth.into());
            })
            .await?;
        let listed = operation.cause(self.inner.files().list_opts(path, options)).await;
        if let Ok(entries) = &listed {
            operation.detail("entries", entries.len());
        }
        operation.end(listed).await
    }

    async fn make_dir(&self, path: &GuestPath) -> Result<bool> {
        let mut operation = self.begin("make_dir", |detail| at(path, detail)).await?;
        let made = operation.cause(self.inner.files().make_dir(path)).await;
        if let Ok(made) = made {
            operation.detail("made", made);
        }
        operation.end(made).await
    }

    async fn rename(&self, from: &GuestPath, to: &GuestPath) -> Result<FileEntry> {
        let detail = |detail: &mut Map<String, Value>| {
            at(from, detail);
            detail.insert("to".into(), details::path(to));
        };
        self.tell("rename", detail, self.inner.files().rename(from, to)).await
    }

    async fn remove(&self, path: &GuestPath) -> Result<bool> {
        let mut operation = self.begin("remove", |detail| at(path, detail)).await?;
        let removed = operation.cause(self.inner.files().remove(path)).await;
        if let Ok(existed) = removed {
            operation.detail("existed", existed);
        }
        operation.end(removed).await
    }
}

pub(super) fn at(path: &GuestPath, detail: &mut Map<String, Value>) {
    detail.insert("path".into(), details::path(path));
}

/// What is on its way, its bytes counted; at its end the operation ends, and where nobody waits for that its end is unknown.
pub(super) fn told<T: 'static>(
    body: BoxStream<'static, Result<T>>,
    operation: Operation,
    size: fn(&T) -> usize,
) -> BoxStream<'static, Result<T>> {
    Told { body, operation: Some(operation), size, bytes: 0 }.boxed()
}

struct Told<T> {
    body: BoxStream<'static, Result<T>>,
    operation: Option<Operation>,
    size: fn(&T) -> usize,
    bytes: u64,
}

impl<T> Stream for Told<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = std::task::ready!(self.body.poll_next_unpin(cx));
        if let Some(Ok(chunk)) = &next {
            let bytes = (self.size)(chunk);
            self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        } else if let Some(mut operation) = self.operation.take() {
            operation.detail("bytes", self.bytes);
            match &next {
                Some(failed) => operation.end_at_once(failed),
                None => operation.end_at_once(&Ok(())),
            }
        }
        Poll::Ready(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.body.size_hint()
    }
}

impl<T> Drop for Told<T> {
    fn drop(&mut self) {
        let bytes = self.bytes;
        if let Some(operation) = &mut self.operation {
            operation.detail("bytes", bytes);
        }
    }
}
