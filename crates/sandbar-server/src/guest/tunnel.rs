//! Connections that are no HTTP any more, such as those of a `WebSocket`.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::exchange::SILENCE;

/// Bytes that are passed on at once.
const PIECE: usize = 64 << 10;
/// How long both sides may take from the answer to the first byte of the other protocol.
const SWITCH_LIMIT: Duration = Duration::from_secs(30);
/// How often is looked whether anything moved.
const LOOK: Duration = Duration::from_secs(10);

/// Passes bytes both ways until both halves have ended, the sandbox stops running, or nothing moved for too long.
pub(super) async fn pass(client: OnUpgrade, guest: OnUpgrade, awake: CancellationToken) -> io::Result<()> {
    let both = tokio::time::timeout(SWITCH_LIMIT, async { tokio::try_join!(client, guest) });
    let (client, guest) = both.await.map_err(|_| io::ErrorKind::TimedOut)?.map_err(io::Error::other)?;
    let (client_in, client_out) = tokio::io::split(TokioIo::new(client));
    let (guest_in, guest_out) = tokio::io::split(TokioIo::new(guest));
    let moved = Moved::new();
    let passing = async {
        tokio::try_join!(pump(client_in, guest_out, &moved), pump(guest_in, client_out, &moved)).map(drop)
    };
    tokio::select! {
        passed = passing => passed,
        () = awake.cancelled() => Err(io::ErrorKind::ConnectionReset.into()),
        () = moved.no_more(SILENCE) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Passes one way until its end, which is passed on, too.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &Moved,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let got = from.read(&mut piece).await?;
        moved.note();
        if got == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..got]).await?;
        moved.note();
    }
}

/// When something moved last.
struct Moved {
    since: Instant,
    last: AtomicU64,
}

impl Moved {
    fn new() -> Self {
        Self { since: Instant::now(), last: AtomicU64::new(0) }
    }

    fn note(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Returns once nothing moved for `time`.
    async fn no_more(&self, time: Duration) {
        loop {
            tokio::time::sleep(LOOK).await;
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            if self.since.elapsed().saturating_sub(last) >= time {
                return;
            }
        }
    }
}
