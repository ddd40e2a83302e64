//! Logs of a sandbox that are read, and followed while they grow.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use sandbar_core::{ErrorKind, Result};

use crate::error::{fail, io_error};
use crate::home::{DecisionReader, Folder, MainLogReader};

/// Between two looks at a log that is followed: a person does not notice it, and a look is a few system calls.
pub(super) const STEP: Duration = Duration::from_millis(100);

/// A reader of a log that goes on where it stopped.
pub(super) trait LogReader: Send + 'static {
    type Item: Send + 'static;
    /// The file, for messages.
    const FILE: &'static str;

    /// What is there that was not read yet.
    fn read(&mut self, folder: &Folder) -> io::Result<Vec<Self::Item>>;
}

impl LogReader for MainLogReader {
    type Item = sandbar_core::LogEvent;
    const FILE: &'static str = "`main.log`";

    fn read(&mut self, folder: &Folder) -> io::Result<Vec<Self::Item>> {
        MainLogReader::read(self, folder)
    }
}

impl LogReader for DecisionReader {
    type Item = sandbar_core::Decision;
    const FILE: &'static str = "`egress.jsonl`";

    fn read(&mut self, folder: &Folder) -> io::Result<Vec<Self::Item>> {
        DecisionReader::read(self, folder)
    }
}

/// Reads all that is there, away from whoever serves other things: it may be much.
pub(super) async fn read_aside<R: LogReader>(
    mut reader: R,
    folder: Folder,
    operation: &'static str,
) -> Result<(Vec<R::Item>, R, Folder)> {
    let work = tokio::task::spawn_blocking(move || reader.read(&folder).map(|items| (items, reader, folder)));
    match work.await {
        Ok(read) => read.map_err(|cause| io_error(operation, R::FILE, cause)),
        Err(cause) => Err(fail(ErrorKind::Unexpected, operation, format!("the reader was lost: {cause}"))),
    }
}

/// What goes on being read of a log.
#[async_trait]
pub(super) trait Following: Send + 'static {
    type Item: Send + 'static;

    /// What came since the last call, and whether more may come. It waits until there is something, or an end.
    async fn next(&mut self) -> Result<(Vec<Self::Item>, bool)>;
}

/// What was read, and after it what comes, where that is wanted.
pub(super) fn stream_of<F: Following>(
    first: Vec<F::Item>,
    following: Option<F>,
) -> BoxStream<'static, Result<F::Item>> {
    let first = stream::iter(first.into_iter().map(Ok));
    let rest = stream::unfold(following, |following| async move {
        let mut following = following?;
        match following.next().await {
            Ok((items, goes_on)) => {
                let items: Vec<_> = items.into_iter().map(Ok).collect();
                Some((items, goes_on.then_some(following)))
            }
            Err(error) => Some((vec![Err(error)], None)),
        }
    });
    first.chain(rest.flat_map(stream::iter)).boxed()
}
