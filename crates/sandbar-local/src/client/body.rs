use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::HeaderMap;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use sandbar_core::{ByteStream, Error};
use tokio::time::Instant;

use super::pool::Lease;

/// A request's body.
pub(super) type RequestBody = UnsyncBoxBody<Bytes, Broken>;

/// The body's own stream ended with an error, which is kept for the caller.
#[derive(Debug)]
pub(super) struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the body ended with an error")
    }
}

impl std::error::Error for Broken {}

/// A body that is there already.
pub(super) fn whole(bytes: impl Into<Bytes>) -> RequestBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Where the error of a [`streamed`] body ends up.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyError(Arc<Mutex<Option<Error>>>);

impl BodyError {
    /// The error, if there was one.
    pub(super) fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How far a [`streamed`] body has got.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<Step>>);

#[derive(Clone, Copy, Debug)]
struct Step {
    /// The connection waits for the stream's next bytes, so that it is not the agent that keeps the transfer.
    wanted: bool,
    at: Instant,
}

impl Progress {
    fn note(&self, wanted: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Step { wanted, at: Instant::now() };
    }

    fn step(&self) -> Step {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends once the other side took nothing for `bound`.
    pub(super) async fn stops_for(&self, bound: Duration) {
        loop {
            let step = self.step();
            let latest = if step.wanted { Instant::now() + bound } else { step.at + bound };
            if !step.wanted && step.at.elapsed() >= bound {
                return;
            }
            tokio::time::sleep_until(latest).await;
        }
    }
}

/// A body from a stream. If it ends with an error, the request is cut off, and the error is kept.
pub(super) fn streamed(mut stream: ByteStream) -> (RequestBody, BodyError, Progress) {
    let error = BodyError::default();
    let kept = error.clone();
    let progress = Progress(Arc::new(Mutex::new(Step { wanted: false, at: Instant::now() })));
    let noted = progress.clone();
    let stream = futures::stream::poll_fn(move |cx| {
        let next = stream.poll_next_unpin(cx);
        noted.note(next.is_pending());
        next
    });
    let frames = stream.map(move |chunk| match chunk {
        Ok(bytes) => Ok(Frame::data(bytes)),
        Err(cause) => {
            *kept.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
            Err(Broken)
        }
    });
    (BodyExt::boxed_unsync(StreamBody::new(frames)), error, progress)
}

/// A response's body. Read to its end, it gives its connection back for the next request; dropped before, it closes it, which tells the agent.
#[derive(Debug)]
pub(super) struct ResponseBody {
    incoming: Incoming,
    lease: Option<Lease>,
    trailers: Option<HeaderMap>,
}

impl ResponseBody {
    pub(super) fn new(incoming: Incoming, lease: Lease) -> Self {
        let mut body = Self { incoming, lease: Some(lease), trailers: None };
        body.settle();
        body
    }

    fn settle(&mut self) {
        if self.incoming.is_end_stream()
            && let Some(lease) = self.lease.take()
        {
            lease.give_back();
        }
    }

    /// What came after the bytes, at their end.
    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// The next bytes; `None` at the end.
    pub(super) async fn chunk(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }

    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, hyper::Error>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
                return Poll::Pending;
            };
            match frame {
                Some(Ok(frame)) => {
                    self.settle();
                    match frame.into_data() {
                        Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                        Err(frame) => self.trailers = frame.into_trailers().ok(),
                    }
                }
                Some(Err(cause)) => {
                    self.lease = None;
                    return Poll::Ready(Some(Err(cause)));
                }
                None => {
                    if let Some(lease) = self.lease.take() {
                        lease.give_back();
                    }
                    return Poll::Ready(None);
                }
            }
        }
    }

    /// Reads it all, up to `limit` bytes; `None` means that there was more.
    pub(super) async fn collect(mut self, limit: usize) -> Result<Option<Vec<u8>>, hyper::Error> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await {
            let chunk = chunk?;
            if bytes.len() + chunk.len() > limit {
                return Ok(None);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some(bytes))
    }
}
