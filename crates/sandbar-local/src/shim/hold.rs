//! Holding a sandbox still for somebody who reads its files from outside: it is stopped as for a copy, and goes on once the other side lets go, goes away, or
//! takes too long. The record says so meanwhile, for a shim that takes over.

use std::sync::Arc;
use std::time::Duration;

use sandbar_core::State;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufStream};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::copy::Still;
use super::protocol::Reply;
use super::serve;
use super::shared::Shared;
use crate::ask::PATIENCE;
use crate::error::ErrorForm;

/// How long somebody may hold a sandbox: 100 GiB are copied at 200 MB/s in less than ten minutes.
const LEASE: Duration = Duration::from_secs(900);
/// How long the one who holds it may say nothing: several times as long as that one waits between two signs of life.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest line by which the other side lets go, in bytes; the signs of life are part of it, one byte each.
const MAX_WORD: usize = 256;

/// Holds the sandbox for the other side of `stream` until that says a line, is gone, is silent, or its time is over. Only in the first case there is another answer: that
/// nothing moved from the answer before to this one.
pub(super) async fn hold(shared: &Arc<Shared>, mut stream: BufStream<UnixStream>) -> std::io::Result<()> {
    // It neither sleeps nor wakes meanwhile.
    let turn = match shared.turn(PATIENCE, "hold").await {
        Ok(turn) => turn,
        Err(error) => return serve::send(&mut stream, &Reply::Failed(ErrorForm::from(&error))).await,
    };
    let sleeps = shared.look(|record| record.state == State::Sleeping);
    let still = if sleeps { Ok(None) } else { Still::of(shared).await.map(Some) };
    let still = match still {
        Ok(still) => still,
        Err(error) => return serve::send(&mut stream, &Reply::Failed(ErrorForm::from(&error))).await,
    };
    serve::send(&mut stream, &Reply::Held).await?;
    let was_let_go = timeout(LEASE, let_go(&mut stream, SILENCE)).await.unwrap_or_default();
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

/// Whether the other side says a line. One that is stopped says nothing: what it holds must not stand still for as long as that takes.
async fn let_go(stream: &mut (impl AsyncBufRead + Unpin), silence: Duration) -> bool {
    let mut left = MAX_WORD;
    while left > 0 {
        let Ok(Ok(bytes)) = timeout(silence, stream.fill_buf()).await else { return false };
        if bytes.is_empty() {
            return false;
        }
        if bytes.iter().take(left).any(|byte| *byte == b'\n') {
            return true;
        }
        let got = bytes.len();
        stream.consume(got);
        left = left.saturating_sub(got);
    }
    false
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, BufReader, duplex};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn it_is_held_as_long_as_the_other_side_is_heard() {
        let (mut holder, shim) = duplex(1);
        let said = async {
            for _ in 0..100 {
                holder.write_all(b" ").await.unwrap();
            }
            holder.write_all(b"go\n").await.unwrap();
        };
        let mut shim = BufReader::new(shim);
        let (was_let_go, ()) = tokio::join!(let_go(&mut shim, LONG), said);
        assert!(was_let_go);
    }

    #[tokio::test]
    async fn who_is_silent_or_gone_or_says_too_much_holds_nothing() {
        let (mut holder, shim) = duplex(1024);
        holder.write_all(b" ").await.unwrap();
        assert!(!let_go(&mut BufReader::new(shim), Duration::from_millis(20)).await);
        let (holder, shim) = duplex(1024);
        drop(holder);
        assert!(!let_go(&mut BufReader::new(shim), LONG).await);
        let (mut holder, shim) = duplex(1024);
        holder.write_all(&[b' '; MAX_WORD]).await.unwrap();
        holder.write_all(b"go\n").await.unwrap();
        assert!(!let_go(&mut BufReader::new(shim), LONG).await);
    }
}
