//! A connection that can be reset.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The end of a connection that a test's client sees.
pub(crate) struct Line {
    stream: TcpStream,
    control: Control,
}

/// What whoever answers on a connection knows and may do of it.
#[derive(Clone, Default)]
pub(crate) struct Control(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// How often all that was written had left.
    flushes: u64,
    waiting: Option<Waker>,
    is_reset: bool,
}

impl Control {
    /// Resets the connection once whoever holds it lets go of it.
    pub(crate) fn reset(&self) {
        self.with(|state| state.is_reset = true);
    }

    pub(crate) fn flushes(&self) -> u64 {
        self.with(|state| state.flushes)
    }

    /// Ready when all that was written has left since there were so many flushes.
    pub(crate) fn poll_flushed(&self, since: u64, context: &mut Context<'_>) -> Poll<()> {
        self.with(|state| {
            if state.flushes > since {
                return Poll::Ready(());
            }
            state.waiting = Some(context.waker().clone());
            Poll::Pending
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Line {
    pub(crate) fn new(stream: TcpStream) -> (Self, Control) {
        // Pieces are to arrive as they were cut.
        let _ = stream.set_nodelay(true);
        let control = Control::default();
        (Self { stream, control: control.clone() }, control)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.control.with(|state| state.is_reset) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            let waiting = self.control.with(|state| {
                state.flushes += 1;
                state.waiting.take()
            });
            if let Some(waiting) = waiting {
                waiting.wake();
            }
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
