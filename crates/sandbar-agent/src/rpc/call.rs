use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use hyper::body::Incoming;
use sandbar_wire::envd::{
    Code, FrameDecoder, KEEPALIVE_DEFAULT_SECS, KEEPALIVE_HEADER, MAX_MESSAGE_BYTES, RpcError,
    STREAM_CONTENT_TYPE, TIMEOUT_HEADER, UNARY_CONTENT_TYPE, end_frame,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::http::{Body, Response, json, next_piece, read_all};
use crate::processes::{FrameBody, Pace, Queue};

/// Longest keepalive and deadline that are taken literally, in seconds; more is as good as none.
const MAX_SECS: u64 = 365 * 24 * 3600;

/// Whether the request has the content type of its kind of call.
pub(super) fn has_type(headers: &HeaderMap, wanted: &str) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(wanted)
}

/// The limit that a request sets on its call or command; 0 is none.
pub(super) fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, RpcError> {
    let Some(value) = headers.get(TIMEOUT_HEADER) else { return Ok(None) };
    let millis: u64 = value.to_str().ok().and_then(|text| text.parse().ok()).ok_or_else(|| {
        RpcError::new(
            Code::InvalidArgument,
            format!("header `{TIMEOUT_HEADER}` is not a number of milliseconds"),
        )
    })?;
    let limit = Duration::from_millis(millis.min(MAX_SECS * 1000));
    Ok((millis != 0).then(|| Instant::now() + limit))
}

pub(super) fn pace(headers: &HeaderMap, keepalive_frame: Bytes, deadline: Option<Instant>) -> Pace {
    let asked = headers.get(KEEPALIVE_HEADER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let seconds = asked.filter(|seconds| *seconds > 0).unwrap_or(KEEPALIVE_DEFAULT_SECS).min(MAX_SECS);
    Pace { keepalive: Duration::from_secs(seconds), keepalive_frame, deadline }
}

/// The message of a unary call.
pub(super) async fn unary<T: DeserializeOwned>(body: Incoming) -> Result<T, RpcError> {
    let body = read_all(body, MAX_MESSAGE_BYTES).await.map_err(|error| {
        let code = if error.code == 413 { Code::ResourceExhausted } else { Code::InvalidArgument };
        RpcError::new(code, error.message)
    })?;
    parse(if body.is_empty() { b"{}" } else { &body })
}

/// The one message of a call that answers with a stream.
pub(super) async fn single<T: DeserializeOwned>(body: Incoming) -> Result<T, RpcError> {
    let mut messages = Messages::new(body);
    let message = messages.next().await?;
    // Who sends in chunks sends the last one, which is empty, on its own. A connection whose request was not read to its end is closed with
    // the answer, and a client that was not told meets that with its next request. Nobody waits for it.
    tokio::task::spawn_local(async move { while let Ok(Some(_)) = next_piece(&mut messages.body).await {} });
    parse(&message.ok_or_else(|| RpcError::new(Code::InvalidArgument, "the request has no message"))?)
}

/// The messages of a call whose request is a stream.
pub(super) struct Messages {
    body: Incoming,
    decoder: FrameDecoder,
    ended: bool,
}

impl Messages {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, decoder: FrameDecoder::new(MAX_MESSAGE_BYTES), ended: false }
    }

    /// The next message; `None` at the end, with or without an end frame.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, RpcError> {
        let invalid = |error: &dyn std::fmt::Display| RpcError::new(Code::InvalidArgument, error.to_string());
        loop {
            if self.ended {
                return Ok(None);
            }
            if let Some(frame) = self.decoder.next_frame().map_err(|error| invalid(&error))? {
                if frame.is_end() {
                    self.ended = true;
                    return Ok(None);
                }
                return Ok(Some(frame.payload));
            }
            if let Some(piece) = next_piece(&mut self.body).await.map_err(|error| invalid(&error))? {
                self.decoder.push(&piece);
            } else {
                self.ended = true;
                self.decoder.finish().map_err(|error| invalid(&error))?;
            }
        }
    }
}

pub(super) fn parse<T: DeserializeOwned>(message: &[u8]) -> Result<T, RpcError> {
    serde_json::from_slice(message)
        .map_err(|error| RpcError::new(Code::InvalidArgument, format!("read the message: {error}")))
}

/// Answers a unary call.
pub(super) fn answer<T: Serialize>(result: Result<T, RpcError>) -> Response {
    match result {
        Ok(message) => json(200, &message),
        Err(error) => json(error.code.http_status(), &error),
    }
}

/// Answers with a stream; failures are in its last frame.
pub(super) fn stream(result: Result<FrameBody, RpcError>) -> Response {
    frames(match result {
        Ok(body) => Body::Frames(Box::pin(body)),
        Err(error) => end_frame(Some(&error)).into(),
    })
}

pub(super) fn frames(body: Body) -> Response {
    let mut response = http::Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM_CONTENT_TYPE));
    response
}

/// A stream whose content is known already.
pub(super) fn finished(queue: std::rc::Rc<Queue>, pace: Pace) -> FrameBody {
    queue.finish(None);
    FrameBody::new(queue, pace)
}

/// Content type of a kind of call.
pub(super) const fn content_type(streams: bool) -> &'static str {
    if streams { STREAM_CONTENT_TYPE } else { UNARY_CONTENT_TYPE }
}
