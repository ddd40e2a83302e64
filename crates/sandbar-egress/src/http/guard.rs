use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use sandbar_core::DecisionReason;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::peek::{Chunks, Framing, HeadFlaw, Peek, check_head};

/// A head is there in whole so long after its first byte, or after the connection began: what slow networks need, with room.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long a connection may wait for another request: as long as most servers keep one.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(75);
/// Bytes that are read at once.
const ROOM: usize = 16 << 10;

/// Stands before whoever reads HTTP, and lets one message at a time through: a head only in whole and only if it can be read in one way, a body as far
/// as its head says. What follows stays here, so that an upgrade finds it, and nobody else reads on where this did not.
#[derive(Debug)]
pub(super) struct Guard<S> {
    stream: S,
    /// What was read and not let through.
    buffer: BytesMut,
    /// How much of it may go through.
    free: usize,
    place: Place,
    wait: Wait,
    timer: Pin<Box<Sleep>>,
    stop: Option<Stop>,
}

#[derive(Debug)]
enum Place {
    Head,
    Body(u64),
    Chunked(Chunks),
}

/// What `timer` counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Nothing, as no head is waited for.
    Nothing,
    /// The first byte of another request.
    Request,
    /// The whole of a head.
    Head,
}

/// Why nothing goes through any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// What came is refused. `in_head` says that it was where a request starts, so that an answer to it can be told from one to another request.
    Flaw { flaw: HeadFlaw, in_head: bool },
    /// A head did not come in time.
    TooSlow,
    /// No other request came.
    Idle,
}

impl Stop {
    pub(super) fn reason(self) -> Option<DecisionReason> {
        match self {
            Self::Flaw { flaw, .. } => Some(flaw.reason()),
            Self::TooSlow => Some(DecisionReason::TooSlow),
            Self::Idle => None,
        }
    }
}

impl<S> Guard<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            free: 0,
            place: Place::Head,
            wait: Wait::Head,
            timer: Box::pin(sleep(HEAD_TIME)),
            stop: None,
        }
    }

    /// Why it stopped, if it did.
    pub(super) fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// The stream, and what was read of it and did not go through.
    pub(super) fn into_parts(self) -> (S, BytesMut) {
        (self.stream, self.buffer)
    }

    /// Looks at what is there, and frees what may go through. Says whether anything is free.
    fn judge(&mut self) -> Result<bool, Stop> {
        if self.free > 0 {
            return Ok(true);
        }
        if self.buffer.is_empty() {
            return Ok(false);
        }
        let flawed = |in_head| move |flaw| Stop::Flaw { flaw, in_head };
        match &mut self.place {
            Place::Head => match check_head(&self.buffer) {
                Peek::NeedMore(_) => {}
                Peek::Bad(flaw) => return Err(flawed(true)(flaw)),
                Peek::Done(head) => {
                    self.free = head.len;
                    self.place = match head.body {
                        Framing::Length(0) => Place::Head,
                        Framing::Length(length) => Place::Body(length),
                        Framing::Chunked => Place::Chunked(Chunks::default()),
                    };
                    self.wait = Wait::Nothing;
                }
            },
            Place::Body(left) => {
                self.free = self.buffer.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= self.free as u64;
                if *left == 0 {
                    self.place = Place::Head;
                }
            }
            Place::Chunked(chunks) => {
                self.free = chunks.advance(&self.buffer).map_err(flawed(false))?;
                if chunks.is_over() {
                    self.place = Place::Head;
                }
            }
        }
        Ok(self.free > 0)
    }

    /// The time for a head, where one is waited for.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> Result<(), Stop> {
        if !matches!(self.place, Place::Head) {
            return Ok(());
        }
        let (wait, time) = match (self.wait, self.buffer.is_empty()) {
            (Wait::Nothing, true) => (Wait::Request, BETWEEN_REQUESTS),
            (Wait::Nothing | Wait::Request, false) => (Wait::Head, HEAD_TIME),
            (wait, _) => (wait, Duration::ZERO),
        };
        if wait != self.wait {
            self.wait = wait;
            self.timer.as_mut().reset(Instant::now() + time);
        }
        match self.timer.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) if self.wait == Wait::Head => Err(Stop::TooSlow),
            Poll::Ready(()) => Err(Stop::Idle),
        }
    }

    fn stopped(&mut self, stop: Stop) -> io::Error {
        self.stop = Some(stop);
        io::Error::new(io::ErrorKind::InvalidData, "the request is refused")
    }
}

impl<S: AsyncRead + Unpin> Guard<S> {
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let held = self.buffer.len();
        self.buffer.resize(held + ROOM, 0);
        let mut room = ReadBuf::new(&mut self.buffer[held..]);
        let result = Pin::new(&mut self.stream).poll_read(cx, &mut room);
        let count = room.filled().len();
        self.buffer.truncate(held + count);
        ready!(result)?;
        Poll::Ready(Ok(count))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.stop.is_some() {
            return Poll::Ready(Ok(()));
        }
        loop {
            match this.judge() {
                Ok(true) => {
                    let count = this.free.min(buf.remaining());
                    buf.put_slice(&this.buffer[..count]);
                    this.buffer.advance(count);
                    this.free -= count;
                    return Poll::Ready(Ok(()));
                }
                Ok(false) => {}
                Err(stop) => return Poll::Ready(Err(this.stopped(stop))),
            }
            match this.fill(cx)? {
                Poll::Ready(0) => return Poll::Ready(Ok(())),
                Poll::Ready(_) => {}
                Poll::Pending => {
                    if let Err(stop) = this.poll_time(cx) {
                        return Poll::Ready(Err(this.stopped(stop)));
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
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
