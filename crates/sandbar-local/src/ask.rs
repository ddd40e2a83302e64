//! The client of `shim.sock`.

use std::time::Duration;

use sandbar_core::{ErrorKind, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::error::{fail, unknown};
use crate::home::Folder;
use crate::shim::SHIM_SOCKET;
use crate::shim::protocol::{MAX_LINE, Op, Reply, Request};

/// How long an answer may take; a shim answers at once unless its machine is swamped.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);
/// How long a destruction may take: a folder of a million entries takes tens of seconds.
pub(crate) const DESTRUCTION: Duration = Duration::from_secs(600);

/// How long somebody who may act on a sandbox at once waits for whoever copies it: shorter than [`ANSWER`], so that the answer says why.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long a copy waits for another one, which takes as long as it is large: several in a row have their turn, and a caller does not wait for hours.
pub(crate) const COPY_PATIENCE: Duration = Duration::from_secs(120);

/// How long a copy of all that a sandbox wrote may take.
pub(crate) const COPY: Duration = Duration::from_secs(3600);
/// Between two attempts to get into a full queue, for which there is no event.
const RETRY: Duration = Duration::from_millis(5);

/// What came of a question.
#[derive(Debug)]
pub(crate) enum Answer {
    /// An answer, and the connection it came by.
    Reply(Box<Reply>, BufReader<UnixStream>),
    /// Nobody serves the socket, or whoever did went away in the middle: look again.
    Nobody,
}

/// Asks the shim of the sandbox in `folder`. Refusals of the shim are errors.
pub(crate) async fn ask(folder: &Folder, op: Op, bound: Duration, operation: &'static str) -> Result<Answer> {
    let id = folder.id().as_str();
    let needed = op.version();
    let answer = match timeout(bound, exchange(folder, op)).await {
        Ok(Ok(Some(answer))) => answer,
        Ok(Ok(None)) => return Ok(Answer::Nobody),
        Ok(Err(cause)) => return Err(unknown(operation, id, format!("its shim can't be asked: {cause}"))),
        Err(_) => {
            let why = format!("its shim did not answer within {} s", bound.as_secs());
            return Err(unknown(operation, id, why).with_retry(sandbar_core::Retry::OutcomeUnknown));
        }
    };
    let (reply, stream) = answer;
    match reply {
        Reply::Failed(error) => Err(error.into_error(operation)),
        Reply::Versions(versions) => {
            let message = format!(
                "the shim of sandbox `{id}` speaks versions {versions:?} of its protocol, and this takes version {needed}"
            );
            let hint = if versions.iter().all(|version| *version < needed) {
                "the sandbox is guarded by an older `sandbar`: use that version for this, or make a new sandbox"
            } else {
                "the sandbox is guarded by a newer `sandbar`: use that version"
            };
            Err(fail(ErrorKind::Config, operation, message).with_hint(hint))
        }
        reply => Ok(Answer::Reply(Box::new(reply), stream)),
    }
}

async fn exchange(folder: &Folder, op: Op) -> std::io::Result<Option<(Reply, BufReader<UnixStream>)>> {
    use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, WouldBlock};
    let stream = loop {
        match UnixStream::connect(folder.socket(SHIM_SOCKET)).await {
            Ok(stream) => break stream,
            // Reset: it took the connection and ended before it looked at it.
            Err(cause) if matches!(cause.kind(), NotFound | ConnectionRefused | ConnectionReset) => {
                return Ok(None);
            }
            // The queue of connections is full: the shim is busy. The caller's bound ends this.
            Err(cause) if cause.kind() == WouldBlock => tokio::time::sleep(RETRY).await,
            Err(cause) => return Err(cause),
        }
    };
    let mut line = serde_json::to_vec(&Request { v: op.version(), op })?;
    line.push(b'\n');
    let mut stream = BufReader::with_capacity(1024, stream);
    let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    let mut answer = Vec::new();
    let read = async {
        stream.write_all(&line).await?;
        (&mut stream).take(limit).read_until(b'\n', &mut answer).await
    };
    match read.await {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some((serde_json::from_slice(&answer)?, stream))),
        Err(cause) if matches!(cause.kind(), BrokenPipe | ConnectionReset) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// A reply that does not belong to the question.
pub(crate) fn misplaced(operation: &'static str) -> sandbar_core::Error {
    fail(ErrorKind::Protocol, operation, "the shim's answer does not belong to the question")
}
