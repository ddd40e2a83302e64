//! Bodies of requests.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use sandbar_core::{ByteStream, Error};
use tokio::time::Instant;

/// What a request carries.
pub(crate) enum Body {
    Empty,
    Bytes(Bytes),
    Stream(Source),
}

impl Body {
    pub(crate) fn stream(stream: ByteStream, length: Option<u64>) -> Self {
        Self::Stream(Source(Arc::new(Mutex::new(State {
            stream: Some(stream),
            length,
            is_touched: false,
            moved: None,
            fault: None,
        }))))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("none"),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Stream(_) => f.write_str("a stream"),
        }
    }
}

/// A stream that is still there as long as nothing was asked of it, for an attempt that did not come as far.
#[derive(Clone)]
pub(crate) struct Source(Arc<Mutex<State>>);

struct State {
    stream: Option<ByteStream>,
    length: Option<u64>,
    is_touched: bool,
    moved: Option<Instant>,
    fault: Option<Error>,
}

impl Source {
    pub(crate) fn is_untouched(&self) -> bool {
        !self.with(|state| state.is_touched)
    }

    /// When something of it was taken last.
    pub(crate) fn moved(&self) -> Option<Instant> {
        self.with(|state| state.moved)
    }

    /// What the stream itself ended with, which is why the call failed.
    pub(crate) fn take_fault(&self) -> Option<Error> {
        self.with(|state| state.fault.take())
    }

    pub(crate) fn upload(&self) -> Upload {
        Upload { source: self.clone(), left: self.with(|state| state.length) }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The body of one attempt.
pub(crate) struct Upload {
    source: Source,
    left: Option<u64>,
}

/// Stands for the stream's own error on its way through the HTTP library.
#[derive(Debug)]
pub(crate) struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what was to be sent broke off")
    }
}

impl std::error::Error for Broken {}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        let left = &mut this.left;
        this.source.with(|state| {
            state.is_touched = true;
            let Some(stream) = &mut state.stream else { return Poll::Ready(None) };
            let item = match stream.as_mut().poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(item) => item,
            };
            state.moved = Some(Instant::now());
            let fault = match (item, left.as_mut()) {
                (Some(Ok(bytes)), None) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                (Some(Ok(bytes)), Some(left)) if bytes.len() as u64 <= *left => {
                    *left -= bytes.len() as u64;
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                (None, None | Some(0)) => {
                    state.stream = None;
                    return Poll::Ready(None);
                }
                (Some(Ok(_)), _) => length(state.length, "is longer"),
                (None, _) => length(state.length, "ended before it"),
                (Some(Err(error)), _) => error,
            };
            state.fault = Some(fault);
            state.stream = None;
            Poll::Ready(Some(Err(Broken)))
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

fn length(announced: Option<u64>, what: &str) -> Error {
    let announced = announced.unwrap_or_default();
    Error::invalid("send", format!("a stream of {announced} bytes was announced, and what came {what}"))
}
