use std::fmt;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde::Serialize;

use crate::{Error, ErrorKind, GuestPath, Result, UserName};

/// A stream of bytes, in order; ends with the first error.
pub type ByteStream = BoxStream<'static, Result<Bytes>>;

/// Reads and writes files.
#[async_trait]
pub trait Files: Send + Sync {
    /// Reads a file as a stream. A missing file is `NotFound`, a folder `InvalidInput`.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let path = GuestPath::new("/tmp/file")?;
    /// sandbox.files().write(&path, "0123456789".into()).await?;
    /// let range = Some(FileRange { start: 2, length: Some(3) });
    /// let read = sandbox.files().read_opts(&path, ReadOptions { range, user: None }).await?;
    /// assert_eq!(read.collect(100).await?, "234");
    /// # Ok(())
    /// # }
    /// ```
    async fn read_opts(&self, path: &GuestPath, options: ReadOptions) -> Result<FileRead>;

    /// Writes a file, replacing what was there, and makes the folders above it. The file is the user's.
    ///
    /// A body that ends with an error leaves no new file, and its error is the answer.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let path = GuestPath::new("/tmp/new/folder/file")?;
    /// let entry = sandbox.files().write(&path, "text".into()).await?;
    /// assert_eq!((entry.size, entry.owner.as_str()), (4, "user"));
    /// # Ok(())
    /// # }
    /// ```
    async fn write_opts(
        &self,
        path: &GuestPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<FileEntry>;

    /// What is at `path`, links followed; `None` means that there is positively nothing.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// assert!(sandbox.files().stat(&GuestPath::new("/no/such/file")?).await?.is_none());
    /// let tmp = sandbox.files().stat(&GuestPath::new("/tmp")?).await?.expect("it is there");
    /// assert_eq!(tmp.kind, EntryKind::Directory);
    /// # Ok(())
    /// # }
    /// ```
    async fn stat(&self, path: &GuestPath) -> Result<Option<FileEntry>>;

    /// What is in a folder, in no order. A missing folder is `NotFound`, a file `InvalidInput`; an empty list is an empty folder.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let folder = GuestPath::new("/tmp")?;
    /// assert!(sandbox.files().list(&folder).await?.is_empty());
    /// let missing = sandbox.files().list(&folder.join("missing")?).await.unwrap_err();
    /// assert_eq!(missing.kind(), ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    async fn list_opts(&self, path: &GuestPath, options: ListOptions) -> Result<Vec<FileEntry>>;

    /// Makes a folder and those above it; `false` means that it was there already. A file in its place is `InvalidInput`.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let folder = GuestPath::new("/tmp/a/b")?;
    /// assert!(sandbox.files().make_dir(&folder).await?);
    /// assert!(!sandbox.files().make_dir(&folder).await?);
    /// # Ok(())
    /// # }
    /// ```
    async fn make_dir(&self, path: &GuestPath) -> Result<bool>;

    /// Moves a file or folder, making the folders above the destination. A missing source is `NotFound`.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let (from, to) = (GuestPath::new("/tmp/from")?, GuestPath::new("/tmp/below/to")?);
    /// sandbox.files().write(&from, "text".into()).await?;
    /// assert_eq!(sandbox.files().rename(&from, &to).await?.path, to);
    /// # Ok(())
    /// # }
    /// ```
    async fn rename(&self, from: &GuestPath, to: &GuestPath) -> Result<FileEntry>;

    /// Removes a file or a folder with all that is in it; `false` means that there was positively nothing. Links are not followed.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let path = GuestPath::new("/tmp/file")?;
    /// sandbox.files().write(&path, "text".into()).await?;
    /// assert!(sandbox.files().remove(&path).await?);
    /// assert!(!sandbox.files().remove(&path).await?);
    /// # Ok(())
    /// # }
    /// ```
    async fn remove(&self, path: &GuestPath) -> Result<bool>;
}

/// How to read a file.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Which bytes; all if absent.
    pub range: Option<FileRange>,
    /// Whose rights and home count; the template's default user if absent.
    pub user: Option<UserName>,
}

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The first byte's offset.
    pub start: u64,
    /// How many; to the end if absent.
    pub length: Option<u64>,
}

/// How to write a file.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Whose the file is; the template's default user if absent.
    pub user: Option<UserName>,
}

/// How to list a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// How many levels down, at least 1.
    pub depth: u32,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { depth: 1 }
    }
}

/// A file being read.
pub struct FileRead {
    /// Its bytes.
    pub body: ByteStream,
    /// How many bytes the body has, where that is known before its end.
    pub length: Option<u64>,
}

impl FileRead {
    /// Reads it all, up to `limit` bytes; more is `LimitExceeded`.
    pub async fn collect(mut self, limit: usize) -> Result<Bytes> {
        let mut collected = BytesMut::new();
        while let Some(chunk) = self.body.try_next().await? {
            if collected.len() + chunk.len() > limit {
                return Err(Error::new(
                    ErrorKind::LimitExceeded,
                    "read",
                    format!("the file is larger than {limit} bytes"),
                )
                .with_hint("read it as a stream"));
            }
            collected.extend_from_slice(&chunk);
        }
        Ok(collected.freeze())
    }
}

impl fmt::Debug for FileRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRead").field("length", &self.length).finish_non_exhaustive()
    }
}

/// What kind of thing an entry is. A link is told by [`FileEntry::link_target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A file.
    File,
    /// A folder.
    Directory,
    /// Something else: a device, socket or pipe, or a link that leads nowhere.
    Other,
}

/// A file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Where it is.
    pub path: GuestPath,
    /// What it is; of a link, what it leads to.
    pub kind: EntryKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner by name, or number where it has none.
    pub owner: String,
    /// Group by name, or number where it has none.
    pub group: String,
    /// When its content last changed.
    pub modified: Option<Timestamp>,
    /// If it is a link: the absolute path at which it ends, all links followed; its own path where it ends nowhere. What a
    /// link says, rather than where it leads, is for archives to tell.
    pub link_target: Option<Vec<u8>>,
}

/// What can be done with [`Files`] in fewer words.
#[async_trait]
pub trait FilesExt: Files {
    /// Reads a whole file of at most [`DEFAULT_OUTPUT_LIMIT`](crate::DEFAULT_OUTPUT_LIMIT) bytes.
    async fn read(&self, path: &GuestPath) -> Result<Bytes> {
        self.read_opts(path, ReadOptions::default()).await?.collect(crate::DEFAULT_OUTPUT_LIMIT).await
    }

    /// Writes a whole file.
    async fn write(&self, path: &GuestPath, bytes: Bytes) -> Result<FileEntry> {
        self.write_opts(path, stream::once(async move { Ok(bytes) }).boxed(), WriteOptions::default()).await
    }

    /// What is in a folder, one level.
    async fn list(&self, path: &GuestPath) -> Result<Vec<FileEntry>> {
        self.list_opts(path, ListOptions::default()).await
    }

    /// Whether there is something at `path`.
    async fn exists(&self, path: &GuestPath) -> Result<bool> {
        Ok(self.stat(path).await?.is_some())
    }
}

impl<F: Files + ?Sized> FilesExt for F {}
