use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use sandbar_core::{
    ByteStream, Error, ErrorKind, FileEntry, FileRead, Files, GuestPath, ListOptions, ReadOptions, Result,
    UserName, WriteOptions,
};

use super::EnvdClient;
use super::cleanup::Cleanup;
use crate::operation::Operation;

const READ: &str = "read";
const WRITE: &str = "write";
const STAT: &str = "stat";
const LIST: &str = "list";
const MAKE_DIR: &str = "make folder";
const RENAME: &str = "rename";
const REMOVE: &str = "remove";
/// Most bytes of a file that are held before it is sent: of one that is no longer, it is known that it is whole.
const HELD: usize = 1 << 20;

#[async_trait]
impl Files for EnvdClient {
    async fn read_opts(&self, path: &GuestPath, options: ReadOptions) -> Result<FileRead> {
        let operation = self.guest.operation(READ);
        text(path, operation)?;
        let options = ReadOptions { user: self.user(options.user, READ).await?, ..options };
        self.guest.read_opts(path, options).await
    }

    async fn write_opts(
        &self,
        path: &GuestPath,
        mut body: ByteStream,
        options: WriteOptions,
    ) -> Result<FileEntry> {
        let operation = self.guest.operation(WRITE);
        text(path, operation)?;
        let user = self.user(options.user, WRITE).await?;
        let mut held = BytesMut::new();
        let whole = loop {
            match body.try_next().await? {
                None => break true,
                Some(bytes) => held.extend_from_slice(&bytes),
            }
            if held.len() > HELD {
                break false;
            }
        };
        let held = held.freeze();
        if whole {
            self.put(path, held, user.as_ref(), operation).await?;
        } else {
            // What breaks off leaves half a file; one that was not there before is not to be there after it.
            let was_there = Files::stat(self, path).await?.is_some();
            let new = if was_there { Vec::new() } else { vec![text(path, operation)?.to_owned()] };
            let half = Cleanup::new(self, new, operation);
            let body = stream::once(async move { Ok(held) }).chain(body).boxed();
            match self.upload(path, body, user.as_ref(), operation).await {
                Ok(()) => half.done(),
                Err(error) => {
                    half.now().await;
                    return Err(error);
                }
            }
        }
        let written = Files::stat(self, path).await?;
        written.ok_or_else(|| {
            operation.fail(ErrorKind::Conflict, format!("`{path}` was written and is gone again"))
        })
    }

    async fn stat(&self, path: &GuestPath) -> Result<Option<FileEntry>> {
        text(path, self.guest.operation(STAT))?;
        self.guest.stat(path).await
    }

    async fn list_opts(&self, path: &GuestPath, options: ListOptions) -> Result<Vec<FileEntry>> {
        let operation = self.guest.operation(LIST);
        text(path, operation)?;
        // The agent has text for names: for what is none it has a mark, or no answer at all.
        let garbled = |entry: &FileEntry| entry.path.to_str().is_some_and(|text| text.contains('\u{fffd}'));
        match self.guest.list_opts(path, options).await {
            Ok(entries) if entries.iter().any(garbled) => self.list_inside(path, options, operation).await,
            Err(error) if error.kind() == ErrorKind::Unexpected && error.message().contains("UTF-8") => {
                self.list_inside(path, options, operation).await
            }
            listed => listed,
        }
    }

    async fn make_dir(&self, path: &GuestPath) -> Result<bool> {
        text(path, self.guest.operation(MAKE_DIR))?;
        self.guest.make_dir(path).await
    }

    async fn rename(&self, from: &GuestPath, to: &GuestPath) -> Result<FileEntry> {
        let operation = self.guest.operation(RENAME);
        text(from, operation)?;
        text(to, operation)?;
        self.guest.rename(from, to).await
    }

    async fn remove(&self, path: &GuestPath) -> Result<bool> {
        text(path, self.guest.operation(REMOVE))?;
        self.guest.remove(path).await
    }
}

impl EnvdClient {
    /// Whose files are meant: an agent of old has to be told.
    pub(super) async fn user(
        &self,
        user: Option<UserName>,
        operation: &'static str,
    ) -> Result<Option<UserName>> {
        if user.is_some() || self.version(operation).await?.has_default_user() {
            return Ok(user);
        }
        UserName::new("user").map(Some)
    }

    /// Writes a file whose bytes are all there.
    pub(super) async fn put(
        &self,
        path: &GuestPath,
        bytes: Bytes,
        user: Option<&UserName>,
        operation: Operation,
    ) -> Result<()> {
        let form = self.form(path, operation).await?;
        self.guest.upload_whole(path, bytes, user, form, operation).await
    }

    async fn upload(
        &self,
        path: &GuestPath,
        body: ByteStream,
        user: Option<&UserName>,
        operation: Operation,
    ) -> Result<()> {
        let form = self.form(path, operation).await?;
        self.guest.upload(path, body, user, form, operation).await
    }

    async fn form(&self, _path: &GuestPath, operation: Operation) -> Result<crate::upload::Form> {
        let raw = self.version(operation.name).await?.takes_raw_uploads();
        Ok(if raw { crate::upload::Form::Raw } else { crate::upload::Form::Multipart })
    }
}

/// The path as the agent's protocol has it. It takes text alone: what it would make of other bytes is another file.
pub(super) fn text(path: &GuestPath, operation: Operation) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::unsupported(
            operation.name,
            "a file name that is not UTF-8",
            "the sandbox' agent names files by text",
        )
        .with_backend(operation.backend)
        .with_resource(format!("`{path}`"))
        .with_hint("rename it first, by a command inside")
    })
}
