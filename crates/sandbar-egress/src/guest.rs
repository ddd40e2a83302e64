use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use sandbar_core::DecisionReason;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::event::Recorder;
use crate::flows::Track;

/// A connection of the sandbox. Counts what passes, ends when as much left as may, and is reset where it was cut.
pub(crate) struct Guest {
    stream: TcpStream,
    track: Arc<Track>,
    recorder: Arc<Recorder>,
    most_out: Option<u64>,
}

impl Guest {
    pub(crate) fn new(
        stream: TcpStream,
        track: Arc<Track>,
        recorder: Arc<Recorder>,
        most_out: Option<u64>,
    ) -> Self {
        Self { stream, track, recorder, most_out }
    }

    /// Ends it so that the program sees at once that it was refused.
    pub(crate) fn reset(self) {
        reset(&self.stream);
    }
}

/// At the next close, instead of an orderly end. If that can't be told, the end is orderly.
pub(crate) fn reset(stream: &TcpStream) {
    drop(stream.set_zero_linger());
}

impl Drop for Guest {
    fn drop(&mut self) {
        if self.track.is_cut().is_some() {
            reset(&self.stream);
        }
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = u64::try_from(buffer.filled().len() - before).unwrap_or(u64::MAX);
        if bytes > 0 {
            let out =
                self.recorder.counters().bytes_out.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
            self.track.count_out(bytes);
            if self.most_out.is_some_and(|most| out > most) {
                self.track.cut(DecisionReason::UsedUp);
                return Poll::Ready(Err(io::Error::other("as many bytes left the sandbox as may")));
            }
        }
        polled
    }
}

impl AsyncWrite for Guest {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(&polled);
        polled
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

impl Guest {
    fn wrote(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = polled {
            let bytes = u64::try_from(*bytes).unwrap_or(u64::MAX);
            self.recorder.counters().bytes_in.fetch_add(bytes, Ordering::Relaxed);
            self.track.count_in(bytes);
        }
    }
}
