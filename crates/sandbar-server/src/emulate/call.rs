use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sandbar_core::{Error, ErrorKind, GuestPath, UserName};
use sandbar_wire::envd::{
    Code, FrameDecoder, HttpError, KEEPALIVE_DEFAULT_SECS, KEEPALIVE_HEADER, RpcError, STREAM_CONTENT_TYPE,
    TIMEOUT_HEADER, end_frame, message_frame,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::MAX_CALL;

/// Where paths begin that do not begin at the root, of a user who is not root.
const HOME: &str = "/home";

/// A call: one message, and what its head says.
pub(super) struct Call {
    messages: Vec<Bytes>,
    is_stream: bool,
    pub(super) user: Option<UserName>,
    /// How long it may take.
    pub(super) timeout: Option<Duration>,
    /// Longest silence of its answer.
    pub(super) keepalive: Duration,
}

impl Call {
    /// Reads it, or answers what is wrong with it.
    pub(super) async fn read(parts: &Parts, body: Body) -> Result<Self, Response> {
        let headers = &parts.headers;
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_stream = kind.starts_with(STREAM_CONTENT_TYPE);
        let refuse = |error: RpcError| {
            if is_stream { ended(Some(&error)) } else { unary_error(&error) }
        };
        let invalid = |text: &str| refuse(RpcError::new(Code::InvalidArgument, text));
        let whole = axum::body::to_bytes(body, MAX_CALL).await;
        let whole = whole.map_err(|_| invalid("the message is too long, or did not come"))?;
        let messages = if is_stream { frames(&whole).map_err(|text| invalid(&text))? } else { vec![whole] };
        Ok(Self {
            messages,
            is_stream,
            user: user(headers).map_err(|text| refuse(RpcError::new(Code::Unauthenticated, text)))?,
            timeout: number(headers, TIMEOUT_HEADER).filter(|time| *time > 0).map(Duration::from_millis),
            keepalive: Duration::from_secs(
                number(headers, KEEPALIVE_HEADER).filter(|time| *time > 0).unwrap_or(KEEPALIVE_DEFAULT_SECS),
            ),
        })
    }

    /// Its one message.
    pub(super) fn message<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        let first = self.messages.first().map_or(&b"{}"[..], |message| message);
        serde_json::from_slice(first)
            .map_err(|e| RpcError::new(Code::InvalidArgument, format!("not a message: {e}")))
    }

    /// All of its messages.
    pub(super) fn messages<T: DeserializeOwned>(&self) -> Result<Vec<T>, RpcError> {
        let read = |message: &Bytes| serde_json::from_slice(message);
        let all: Result<_, serde_json::Error> = self.messages.iter().map(read).collect();
        all.map_err(|e| RpcError::new(Code::InvalidArgument, format!("not a message: {e}")))
    }

    /// The answer of a call with one message.
    pub(super) fn answer<T: Serialize>(&self, result: Result<T, RpcError>) -> Response {
        match (result, self.is_stream) {
            (Ok(message), false) => json(&message),
            (Err(error), false) => unary_error(&error),
            (Ok(message), true) => framed(Body::from([message_frame(&message), end_frame(None)].concat())),
            (Err(error), true) => ended(Some(&error)),
        }
    }
}

/// An answer of messages as they come. An error ends it.
pub(super) fn stream<T: Serialize + Send + 'static>(
    messages: impl Stream<Item = Result<T, RpcError>> + Send + 'static,
) -> Response {
    let messages: BoxStream<'static, Result<T, RpcError>> = messages.boxed();
    let frames = futures::stream::unfold(Some(messages), |messages| async move {
        let mut messages = messages?;
        Some(match messages.next().await {
            Some(Ok(message)) => (Ok::<_, Infallible>(message_frame(&message)), Some(messages)),
            Some(Err(error)) => (Ok(end_frame(Some(&error))), None),
            None => (Ok(end_frame(None)), None),
        })
    });
    framed(Body::from_stream(frames))
}

/// A stream that ends at once.
pub(super) fn ended(error: Option<&RpcError>) -> Response {
    framed(Body::from(end_frame(error)))
}

fn framed(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM_CONTENT_TYPE));
    response
}

fn unary_error(error: &RpcError) -> Response {
    let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    document(status, error.to_json())
}

/// An error of an endpoint that is no call.
pub(super) fn http_error(error: &HttpError) -> Response {
    let status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    document(status, serde_json::to_vec(error).unwrap_or_default())
}

pub(super) fn json<T: Serialize>(message: &T) -> Response {
    document(StatusCode::OK, serde_json::to_vec(message).unwrap_or_default())
}

fn document(status: StatusCode, text: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn frames(whole: &[u8]) -> Result<Vec<Bytes>, String> {
    let mut decoder = FrameDecoder::new(MAX_CALL);
    decoder.push(whole);
    let mut messages = Vec::new();
    while let Some(frame) = decoder.next_frame().map_err(|e| e.to_string())? {
        if !frame.is_end() {
            messages.push(frame.payload);
        }
    }
    decoder.finish().map_err(|e| e.to_string())?;
    if messages.is_empty() { Err("there is no message".to_owned()) } else { Ok(messages) }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Who asks: the name in `Authorization: Basic`.
pub(super) fn user(headers: &HeaderMap) -> Result<Option<UserName>, String> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let decoded = || {
        let (scheme, text) = value.to_str().ok()?.split_once(' ')?;
        let text =
            scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(text.trim()).ok()).flatten()?;
        String::from_utf8(text).ok()
    };
    let text = decoded().ok_or("authorization header is not `Basic`")?;
    let name = text.split(':').next().unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    UserName::new(name).map(Some).map_err(|_| format!("invalid username: '{name}'"))
}

/// A path as it is given: absolute, below `~`, or relative to the home.
pub(super) fn path(given: &str, user: Option<&UserName>) -> Result<GuestPath, RpcError> {
    let home = match user.map_or("user", |user| user.as_str()) {
        "root" => "/root".to_owned(),
        name => format!("{HOME}/{name}"),
    };
    let whole = match given.strip_prefix('~') {
        _ if given.starts_with('/') => given.to_owned(),
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
        _ => format!("{home}/{given}"),
    };
    GuestPath::new(&whole).map_err(|e| RpcError::new(Code::InvalidArgument, e.message().to_owned()))
}

/// An error of the contract, in the protocol's words.
pub(super) fn failed(error: &Error) -> RpcError {
    let code = match error.kind() {
        ErrorKind::InvalidInput => Code::InvalidArgument,
        ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::PermissionDenied => Code::PermissionDenied,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::Conflict => Code::FailedPrecondition,
        ErrorKind::LimitExceeded => Code::ResourceExhausted,
        ErrorKind::Timeout => Code::DeadlineExceeded,
        ErrorKind::Unavailable => Code::Unavailable,
        _ => Code::Internal,
    };
    RpcError::new(code, error.message())
}
