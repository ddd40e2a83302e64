use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::HeaderMap;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame};
use sandbar_core::{ByteStream, Error};
use tokio::time::Instant;

/// An error of anybody's.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request's body.
pub type RequestBody = UnsyncBoxBody<Bytes, Broken>;

/// The body's own stream ended with an error, which is kept for the caller.
#[derive(Debug)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body ended with an error")
    }
}

impl std::error::Error for Broken {}

/// A body that is there already.
pub fn whole(bytes: impl Into<Bytes>) -> RequestBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Where the error of a [`streamed`] body ends up.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyError(Arc<Mutex<Option<Error>>>);

impl BodyError {
    /// The error, if there was one.
    pub(crate) fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How far a [`streamed`] body has got.
#[derive(Clone, Debug)]
pub(crate) struct Progress(Arc<Mutex<Step>>);

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
    pub(crate) async fn stops_for(&self, bound: Duration) {
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
pub(crate) fn streamed(mut stream: ByteStream) -> (RequestBody, BodyError, Progress) {
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

/// A response's body. Dropped before its end, it closes its connection, which tells the agent.
pub struct ResponseBody {
    inner: UnsyncBoxBody<Bytes, BoxError>,
    trailers: Option<HeaderMap>,
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

impl ResponseBody {
    /// That of an answer.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self { inner: body.map_err(Into::into).boxed_unsync(), trailers: None }
    }

    /// What came after the bytes, at their end.
    pub(crate) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// The next bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, BoxError>> {
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
                return Poll::Pending;
            };
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
                Some(Err(cause)) => return Poll::Ready(Some(Err(cause))),
                None => return Poll::Ready(None),
            }
        }
    }

    /// Reads it all, up to `limit` bytes; `None` means that there was more.
    pub async fn collect(mut self, limit: usize) -> Result<Option<Vec<u8>>, BoxError> {
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
