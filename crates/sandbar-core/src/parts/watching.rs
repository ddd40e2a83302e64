use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::Serialize;

use crate::{GuestPath, Result};

/// Changes as they happen. Ends with an error if any was lost: [`ErrorKind::LimitExceeded`](crate::ErrorKind::LimitExceeded) on overflow. Ends without one
/// once the watched folder itself is removed or renamed.
pub type WatchEvents = BoxStream<'static, Result<FileChange>>;

/// Changes of files as they happen.
#[async_trait]
pub trait Watching: Send + Sync {
    /// Watches a folder. The watch is armed when this answers: every later change is seen or the stream ends with an error.
    /// A missing folder is `NotFound`, a file `InvalidInput`.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let folder = GuestPath::new("/tmp")?;
    /// let mut changes = sandbox.require_watching()?.watch(&folder, WatchOptions::Folder).await?;
    /// sandbox.files().write(&folder.join("file")?, "text".into()).await?;
    /// let change = changes.next().await.expect("the stream goes on")?;
    /// assert_eq!((change.kind, change.path), (FileChangeKind::Create, folder.join("file")?));
    /// # Ok(())
    /// # }
    /// ```
    async fn watch(&self, path: &GuestPath, options: WatchOptions) -> Result<WatchEvents>;
}

/// How to watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatchOptions {
    /// The folder itself.
    #[default]
    Folder,
    /// All below it too, also folders made later.
    Recursive,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// What happened.
    pub kind: FileChangeKind,
    /// To what.
    pub path: GuestPath,
    /// Its new name, of a [`FileChangeKind::Rename`] within what is watched. Absent where it went elsewhere.
    pub to: Option<GuestPath>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// It appeared.
    Create,
    /// Its content changed, once or more often.
    Write,
    /// It went away.
    Remove,
    /// It got another name; the new name comes as [`FileChangeKind::Create`].
    Rename,
    /// Its attributes changed: mode, owner or, where the backend can't tell them apart, times.
    Chmod,
}
