//! Holding a sandbox still for somebody who reads its files from outside: it is stopped as for a copy, and goes on once the other side lets go, goes away, or
//! takes too long. The record says so meanwhile, for a shim that takes over.

use std::sync::Arc;
use std::time::Duration;

use sandbar_core::State;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufStream};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::copy::Still;
use super::protocol::Reply;
use super::serve;
use super::shared::Shared;
use crate::error::ErrorForm;

/// How long somebody may hold a sandbox: 100 GiB are copied at 200 MB/s in less than ten minutes.
const LEASE: Duration = Duration::from_secs(900);
/// Longest line by which the other side lets go, in bytes.
const MAX_WORD: u64 = 256;

/// Holds the sandbox for the other side of `stream` until that says a line, is gone, or its time is over. Only in the first case there is another answer: that
/// nothing moved from the answer before to this one.
pub(super) async fn hold(shared: &Arc<Shared>, mut stream: BufStream<UnixStream>) -> std::io::Result<()> {
    // It neither sleeps nor wakes meanwhile.
    let turn = shared.turning.lock().await;
    let sleeps = shared.look(|record| record.state == State::Sleeping);
    let still = if sleeps { Ok(None) } else { Still::of(shared).await.map(Some) };
    let still = match still {
        Ok(still) => still,
        Err(error) => return serve::send(&mut stream, &Reply::Failed(ErrorForm::from(&error))).await,
    };
    serve::send(&mut stream, &Reply::Held).await?;
    let mut word = Vec::new();
    let mut limited = (&mut stream).take(MAX_WORD);
    let said = timeout(LEASE, limited.read_until(b'\n', &mut word)).await;
    let was_let_go = matches!(said, Ok(Ok(got)) if got > 0);
    let ends = shared.is_asked_to_end() || shared.look(|record| record.state == State::Destroying);
    let goes_on = match still {
        Some(still) => still.over(),
        None => Ok(()),
    };
    drop(turn);
    match goes_on {
        Ok(()) if was_let_go && !ends => serve::send(&mut stream, &Reply::LetGo).await,
        Ok(()) => Ok(()),
        Err(error) => serve::send(&mut stream, &Reply::Failed(ErrorForm::from(&error))).await,
    }
}
