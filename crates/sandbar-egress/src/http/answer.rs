use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use sandbar_core::{DecisionReason, Verdict};

/// The body of an answer: from outside, or our own.
pub(super) type Body = Either<Incoming, Full<Bytes>>;

/// The header by which a program tells an answer of the gateway from one of the host.
const MARK: &str = "x-sandbar-egress";

/// What the sandbox is told about a request that did not go out, or did not come off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    status: StatusCode,
    mark: &'static str,
    text: String,
}

impl Answer {
    pub(super) fn new(verdict: Verdict, reason: DecisionReason, host: &str, detail: Option<&str>) -> Self {
        let status = match reason {
            DecisionReason::Malformed | DecisionReason::NotHttp => StatusCode::BAD_REQUEST,
            DecisionReason::TooSlow => StatusCode::REQUEST_TIMEOUT,
            _ if verdict == Verdict::Failed => StatusCode::BAD_GATEWAY,
            _ => StatusCode::FORBIDDEN,
        };
        let mark = if verdict == Verdict::Failed { "failed" } else { "denied" };
        let detail = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
        let retry = if reason.may_retry() { "" } else { " A retry will not help." };
        Self { status, mark, text: format!("{mark} `{host}`: {}{detail}.{retry}\n", reason.sentence()) }
    }

    /// To a request that was read; the connection ends after it.
    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Either::Right(Full::new(Bytes::from(self.text))));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(MARK, HeaderValue::from_static(self.mark));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    /// To what was no request, as bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let reason = self.status.canonical_reason().unwrap_or_default();
        format!(
            "HTTP/1.1 {} {reason}\r\ncontent-type: text/plain; charset=utf-8\r\n{MARK}: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{}",
            self.status.as_u16(),
            self.mark,
            self.text.len(),
            self.text
        )
        .into_bytes()
    }
}
