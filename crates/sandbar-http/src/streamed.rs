use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyDataStream;
use sandbar_core::{ByteStream, Result};
use tokio::time::Sleep;

use crate::Response;
use crate::attempt::far;
use crate::call::Call;
use crate::fault::Fault;

/// An answer whose body is still to come, whatever its status. Dropping it ends the answer, and on HTTP/1.1 the connection.
///
/// As a stream it yields the body as it comes, holding no more of it than the connection's own buffers. It ends after an error. That it ended
/// without one says that the server ended the body properly, and not that it said all it had to say.
pub struct Streamed {
    pub(crate) call: Arc<Call>,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) attempts: u32,
    body: Option<BodyDataStream<reqwest::Body>>,
    idle_timeout: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl Streamed {
    pub(crate) fn new(
        call: Arc<Call>,
        answer: reqwest::Response,
        idle_timeout: Duration,
        attempts: u32,
    ) -> Self {
        let (head, body) = http::Response::from(answer).into_parts();
        Self {
            call,
            status: head.status,
            headers: head.headers,
            attempts,
            body: Some(BodyDataStream::new(body)),
            idle_timeout,
            silence: None,
            is_waiting: false,
        }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// A header, where it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Our own id of the call, which was sent as `X-Request-Id`.
    pub fn request_id(&self) -> &str {
        &self.call.id
    }

    /// How many attempts it took.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The body as the contract's stream.
    pub fn into_stream(self) -> ByteStream {
        self.boxed()
    }

    /// Reads all of it, at most `limit` bytes: for an answer that turned out to be an error.
    pub async fn into_response(mut self, limit: usize) -> Result<Response> {
        let body = self.read_all(limit).await.map_err(|fault| fault.into_error(&self.call))?;
        Ok(Response {
            call: self.call,
            status: self.status,
            headers: self.headers,
            body,
            attempts: self.attempts,
        })
    }

    pub(crate) async fn read_all(&mut self, limit: usize) -> Result<Bytes, Fault> {
        let announced = self.headers.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        if announced.and_then(|length| length.parse::<u64>().ok()).is_some_and(|length| length > limit as u64)
        {
            return Err(Fault::too_long(limit));
        }
        let mut whole = BytesMut::new();
        while let Some(piece) = std::future::poll_fn(|context| self.poll_piece(context)).await {
            let piece = piece?;
            if whole.len() + piece.len() > limit {
                self.body = None;
                return Err(Fault::too_long(limit));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        if let Poll::Ready(piece) = body.poll_next_unpin(context) {
            self.is_waiting = false;
            if !matches!(piece, Some(Ok(_))) {
                self.body = None;
            }
            return Poll::Ready(
                piece.map(|piece| piece.map_err(|error| Fault::of(error, &self.call.url).midway())),
            );
        }
        // Only waiting counts: a reader that takes its time does not make the server silent.
        let idle_timeout = self.idle_timeout;
        let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle_timeout)));
        if !self.is_waiting {
            self.is_waiting = true;
            silence.as_mut().reset(far(idle_timeout));
        }
        ready!(silence.as_mut().poll(context));
        self.body = None;
        Poll::Ready(Some(Err(Fault::silent(idle_timeout))))
    }
}

impl Stream for Streamed {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let piece = ready!(self.poll_piece(context));
        Poll::Ready(piece.map(|piece| piece.map_err(|fault| fault.into_error(&self.call))))
    }
}

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streamed")
            .field("call", &self.call)
            .field("status", &self.status)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
