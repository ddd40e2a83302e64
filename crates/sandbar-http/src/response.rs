use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sandbar_core::{Error, ErrorKind, Result, Retry};
use serde::de::DeserializeOwned;

use crate::call::Call;
use crate::retry_after::retry_after;

/// Most bytes of an answer that are held unless a request says otherwise: far more than any answer of a control plane has, and little enough
/// that a wrong one does no harm.
pub const DEFAULT_BODY_LIMIT: usize = 16 << 20;

/// A whole answer, whatever its status.
pub struct Response {
    pub(crate) call: Arc<Call>,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) attempts: u32,
}

impl Response {
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

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body, for keeping.
    pub fn into_body(self) -> Bytes {
        self.body
    }

    /// The body as JSON. One that isn't is an error which says that the outcome is unknown unless the call was
    /// [`Safe`](crate::Idempotency::Safe): the server may well have done it.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| {
            // serde quotes what it met, and that may be anything.
            self.unreadable(&format!("{error}"))
        })
    }

    /// An answer whose form makes no sense, and why.
    pub fn unreadable(&self, why: &str) -> Error {
        let retry = self.call.after_effect(Retry::Never);
        let mut message = format!("{}, which can't be read: {why}: {}", self.answered(), self.excerpt());
        if retry == Retry::OutcomeUnknown {
            message.push_str("; whether it was done is unknown");
        }
        self.call.error(ErrorKind::Protocol, &message).with_retry(retry)
    }

    /// An answer that is an error, as `message` says it: what the server said, or what it means. Kind and retry follow from the status.
    ///
    /// `404` and `410` become [`ErrorKind::Protocol`], never [`ErrorKind::NotFound`]: a proxy says them as well, so only a backend that knows the
    /// server's own words for absence can say that something does not exist.
    pub fn refused(&self, message: &str) -> Error {
        let (kind, retry) = self.meaning();
        let mut message = format!("{}: {message} (request `{}`)", self.answered(), self.call.id);
        if retry == Retry::OutcomeUnknown {
            message.push_str("; whether it was done is unknown");
        }
        self.call.error(kind, &message).with_retry(retry)
    }

    /// [`Response::refused`] with the beginning of the body, for a status that was not expected.
    pub fn unexpected(&self) -> Error {
        let excerpt = self.excerpt();
        self.refused(if excerpt.is_empty() { "without a word" } else { &excerpt })
    }

    /// The beginning of the body on one line, at most [`EXCERPT`](crate::EXCERPT) characters, without credentials.
    pub fn excerpt(&self) -> String {
        self.call.redactor.excerpt(&self.body)
    }

    /// When the server says that one may come back.
    pub fn retry_after(&self) -> Option<Duration> {
        retry_after(&self.headers, SystemTime::now())
    }

    /// Our own id of the call, which was sent as `X-Request-Id`.
    pub fn request_id(&self) -> &str {
        &self.call.id
    }

    /// How many attempts it took.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    fn answered(&self) -> String {
        format!("`{}` was answered with {}", self.call.shown(), self.status.as_u16())
    }

    fn meaning(&self) -> (ErrorKind, Retry) {
        let unknown = self.call.after_effect(Retry::Safe);
        match self.status.as_u16() {
            400 | 413..=415 | 422 => (ErrorKind::InvalidInput, Retry::Never),
            401 | 407 => (ErrorKind::Unauthenticated, Retry::Never),
            403 => (ErrorKind::PermissionDenied, Retry::Never),
            409 | 412 => (ErrorKind::Conflict, Retry::Never),
            429 => (ErrorKind::LimitExceeded, self.retry_after().map_or(Retry::Safe, Retry::After)),
            507 => (ErrorKind::LimitExceeded, Retry::Never),
            408 | 504 => (ErrorKind::Timeout, unknown),
            425 => (ErrorKind::Unavailable, Retry::Safe),
            501 => (ErrorKind::Protocol, Retry::Never),
            // Whoever may repeat it is told when.
            500..=599 => match (unknown, self.retry_after()) {
                (Retry::Safe, Some(after)) => (ErrorKind::Unavailable, Retry::After(after)),
                _ => (ErrorKind::Unavailable, unknown),
            },
            200..=399 => (ErrorKind::Protocol, self.call.after_effect(Retry::Never)),
            _ => (ErrorKind::Protocol, Retry::Never),
        }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("call", &self.call)
            .field("status", &self.status)
            .field("body", &format_args!("{} bytes", self.body.len()))
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
