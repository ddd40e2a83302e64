use std::time::Duration;

use sandbar_core::{Error, ErrorKind, Result, State};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::ask::{ANSWER, misplaced};
use crate::client::Link;
use crate::error::{fail, gone, unknown};
use crate::home::{AgentMark, Home, Lock};
use crate::shim::protocol::{Op, Reply};
use crate::store;

/// Longest answer to the last word, in bytes.
const MAX_ANSWER: u64 = 64 << 10;
/// How long a shim may take to let go: as long as its processes may take to go on.
const LET_GO: Duration = Duration::from_secs(30);

/// Between two signs of life to the shim: a sixth of the silence after which it lets go, and few enough for its longest line.
const SIGN: Duration = Duration::from_secs(5);

/// A sandbox whose files nobody changes. Dropped, it goes on as it was.
#[derive(Debug)]
pub(super) enum Still {
    /// Its shim holds it, as long as this connection is open.
    Held(BufReader<UnixStream>),
    /// Nothing of it runs, and nobody starts it as long as this lock is held.
    Stopped(Lock),
}

impl Still {
    /// Holds a sandbox that runs, sleeps or is stopped.
    pub(super) async fn hold(link: &Link, operation: &'static str) -> Result<Self> {
        let id = link.id().as_str();
        let seen = link.inner().look(link.id(), operation)?.ok_or_else(|| gone(operation, id))?;
        if seen.state() != State::Stopped {
            return match link.ask_shim_asleep(|| Op::Hold, ANSWER, operation).await? {
                (Reply::Held, stream) => Ok(Self::Held(stream)),
                _ => Err(misplaced(operation)),
            };
        }
        let blind = |cause: &dyn std::fmt::Display| unknown(operation, id, cause);
        let lock = Lock::take(&seen.folder).map_err(|cause| blind(&cause))?;
        let lock = lock.ok_or_else(|| {
            fail(ErrorKind::Conflict, operation, format!("somebody else acts on sandbox `{id}`"))
                .with_hint("try again")
                .with_retry(sandbar_core::Retry::Safe)
        })?;
        // A fork that was broken off: its files are as before.
        let home = Home::open(&link.inner().home)?.ok_or_else(|| gone(operation, id))?;
        if !seen.folder.is_in_place(&home).map_err(|cause| blind(&cause))? {
            return Err(gone(operation, id));
        }
        let record = seen.folder.record().map_err(|cause| blind(&cause))?;
        let mut record = record.ok_or_else(|| gone(operation, id))?;
        // Somebody may have started it between that look and this lock.
        let agent = record.private.agent.as_ref();
        if agent.map_or(Ok(false), AgentMark::lives).map_err(|cause| blind(&cause))? {
            let why = format!("sandbox `{id}` was started meanwhile");
            return Err(fail(ErrorKind::Conflict, operation, why)
                .with_hint("try again")
                .with_retry(sandbar_core::Retry::Safe));
        }
        store::recover(&home, &seen.folder, &mut record)?;
        Ok(Self::Stopped(lock))
    }

    /// Shows that somebody still holds it. Ends only when the shim does not hear any more.
    pub(super) async fn renew(&mut self) {
        let Self::Held(stream) = self else { return std::future::pending().await };
        loop {
            tokio::time::sleep(SIGN).await;
            if stream.write_all(b" ").await.is_err() {
                return;
            }
        }
    }

    /// Lets it go. An error means that it may have moved since it was held.
    pub(super) async fn let_go(self, link: &Link, operation: &'static str) -> Result<()> {
        let mut stream = match self {
            Self::Held(stream) => stream,
            // Whoever has the lock is the one who acts, and the lock is kept by being there.
            Self::Stopped(lock) => {
                drop(lock);
                return Ok(());
            }
        };
        let mut answer = Vec::new();
        let exchange = async {
            stream.write_all(b"go\n").await?;
            (&mut stream).take(MAX_ANSWER).read_until(b'\n', &mut answer).await
        };
        let done = timeout(LET_GO, exchange).await;
        if matches!(done, Ok(Ok(1..))) && matches!(serde_json::from_slice(&answer), Ok(Reply::LetGo)) {
            return Ok(());
        }
        Err(moved(link, operation).await)
    }
}

/// What it means that a sandbox was not held to the end. Where its shim is gone, another one lets it go on.
async fn moved(link: &Link, operation: &'static str) -> Error {
    match link.ask_shim_of_any(|| Op::Hello, ANSWER, operation).await {
        Err(error) if error.kind() == ErrorKind::NotFound => error,
        _ => {
            let why = format!(
                "sandbox `{}` was not held still to the end: its shim ended or heard nothing for too long, or it is on its way out",
                link.id()
            );
            fail(ErrorKind::Unavailable, operation, why)
                .with_retry(sandbar_core::Retry::Safe)
                .with_hint("nothing was made; try again")
        }
    }
}
