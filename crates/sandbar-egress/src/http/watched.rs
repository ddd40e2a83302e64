use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection on which no byte moved for so long is given up: longer than servers let a client wait for an answer.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(60);

/// Bytes that moved on a connection, in either direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Moved(Arc<AtomicU64>);

impl Moved {
    /// Returns once nothing moved for [`IDLE`].
    pub(super) async fn stopped(&self) {
        let mut last = self.0.load(Ordering::Relaxed);
        let mut idle = Duration::ZERO;
        while idle < IDLE {
            tokio::time::sleep(LOOK).await;
            let now = self.0.load(Ordering::Relaxed);
            idle = if now == last { idle + LOOK } else { Duration::ZERO };
            last = now;
        }
    }
}

/// A stream that counts what moves.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    moved: Moved,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, moved: Moved) -> Self {
        Self { stream, moved }
    }

    fn note(&self, bytes: usize) {
        self.moved.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.note(buf.filled().len() - before);
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(count)) = result {
            self.note(count);
        }
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(count)) = result {
            self.note(count);
        }
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
