use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use sandbar_core::{Error, ErrorKind};
use serde::Serialize;

use crate::error::{ApiError, SHOULD_RETRY};

/// Why a request did not reach what it was for, in the shape that E2B's proxy has for it.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    document: Document,
    /// Whether trying again is of no use: Python's SDK tries a 502 again by itself.
    is_final: bool,
}

/// The body. SDKs find their way by `code` and by words of `message`.
#[derive(Debug, Default, Serialize)]
struct Document {
    #[serde(rename = "sandboxId", skip_serializing_if = "Option::is_none")]
    sandbox_id: Option<String>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    code: u16,
}

impl Problem {
    fn new(status: StatusCode, id: Option<&str>, message: impl Into<String>) -> Self {
        let document = Document {
            sandbox_id: id.map(str::to_owned),
            message: message.into(),
            code: status.as_u16(),
            ..Document::default()
        };
        Self { status, document, is_final: true }
    }

    /// There is no such sandbox, it is another's, or it sleeps and is not to be woken by this.
    pub(super) fn no_sandbox(id: &str) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, Some(id), "The sandbox was not found")
    }

    /// Nothing listens there.
    pub(super) fn closed_port(id: &str, port: u16) -> Self {
        let mut problem =
            Self::new(StatusCode::BAD_GATEWAY, Some(id), "The sandbox is running but port is not open");
        problem.document.port = Some(port);
        problem.is_final = false;
        problem
    }

    /// The port is not public, and the token is missing or another.
    pub(super) fn no_traffic(id: &str, is_given: bool) -> Self {
        let message = if is_given {
            "The traffic access token is not the sandbox' own"
        } else {
            "The sandbox has no public ports: send its trafficAccessToken as e2b-traffic-access-token"
        };
        Self::new(StatusCode::FORBIDDEN, Some(id), message)
    }

    /// It would be woken, by whoever has its token.
    pub(super) fn no_waking(id: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            Some(id),
            "The sandbox sleeps, and a request without its token does not wake it",
        )
    }

    /// Between two states.
    pub(super) fn in_transition(id: &str) -> Self {
        let message = "The sandbox is still transitioning. Try again in a moment.";
        let mut problem = Self::new(StatusCode::CONFLICT, Some(id), message);
        problem.is_final = false;
        problem
    }

    /// More at once than there may be.
    pub(super) fn too_many(id: &str, message: impl Into<String>) -> Self {
        let mut problem = Self::new(StatusCode::TOO_MANY_REQUESTS, Some(id), message);
        problem.is_final = false;
        problem
    }

    /// An endpoint that is for whoever runs the sandbox.
    pub(super) fn reserved(path: &str) -> Self {
        let message = "This endpoint is reserved for the server and can't be called from outside";
        let mut problem = Self::new(StatusCode::NOT_FOUND, None, message);
        problem.document.path = Some(path.to_owned());
        problem
    }

    /// The guest's own way to refuse who has no right.
    pub(super) fn unauthorized(message: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, None, message)
    }

    pub(super) fn bad_request(id: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Some(id), message)
    }

    /// This backend can't do it.
    pub(super) fn not_implemented(id: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, Some(id), message)
    }

    /// The client did not go on with its body.
    pub(super) fn slow_body(id: &str) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, Some(id), "The body of the request did not go on")
    }

    /// Nothing came for too long.
    pub(super) fn silent(id: &str) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, Some(id), "The sandbox did not answer in time")
    }

    /// The connection broke before an answer came, and the sandbox is there: what came of the request is unknown.
    pub(super) fn broken(id: &str) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, Some(id), "The connection broke before the sandbox answered")
    }

    /// An error of the control plane, which does some of this.
    pub(super) fn of_api(id: &str, error: ApiError) -> Self {
        match error.status {
            StatusCode::NOT_FOUND => Self::no_sandbox(id),
            StatusCode::CONFLICT => Self::in_transition(id),
            StatusCode::TOO_MANY_REQUESTS => Self::too_many(id, error.message),
            status => Self::new(status, Some(id), error.message),
        }
    }

    /// An error of the backend: one that says that it is gone is told from one that could not look.
    pub(super) fn of(id: &str, error: &Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::no_sandbox(id),
            ErrorKind::Conflict => Self::in_transition(id),
            ErrorKind::LimitExceeded => Self::too_many(id, error.message()),
            kind => {
                tracing::warn!(%error, sandbox = id, ?kind, "a sandbox could not be reached");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    Some(id),
                    format!("The state of the sandbox is unknown: {}", error.message()),
                )
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.document).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // A page that may ask may know why it got nothing.
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        if self.is_final {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}
