use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use sandbar_core::{Error, ErrorKind, Retry};
use sandbar_wire::e2b::ErrorBody;

/// The result of a handler of the control plane.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// An error in E2B's shape: the body's `code` is the status.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    pub(crate) error_code: Option<&'static str>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), error_code: None, headers: Vec::new() }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// What every unknown and every foreign sandbox answers: nobody learns which of both it is.
    pub(crate) fn no_sandbox(id: &str) -> Self {
        Self::not_found(format!("Sandbox \"{id}\" doesn't exist or you don't have access to it"))
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn with_error_code(mut self, code: &'static str) -> Self {
        self.error_code = Some(code);
        self
    }
}

/// The one place that maps the contract's errors to statuses.
impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::Unsupported => StatusCode::BAD_REQUEST,
            ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::AlreadyExists | ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::LimitExceeded => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            // The backend's own credentials or settings: nothing that the caller could mend.
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut message = error.message().to_owned();
        if let Some(hint) = error.hint() {
            message = format!("{message}: {hint}");
        }
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(error = chain(&error), "a request could not be answered");
        }
        let answer = Self::new(status, message);
        match error.retry() {
            Retry::After(wait)
                if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) =>
            {
                let seconds = wait.as_secs().max(1);
                answer.with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
            }
            // Python would try a 503 or 504 again by itself: not where it is not known what came of the first.
            Retry::OutcomeUnknown | Retry::Never => {
                answer.with_header(SHOULD_RETRY, HeaderValue::from_static("false"))
            }
            _ => answer,
        }
    }
}

/// An error with its causes, for whoever runs the server.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Tells E2B's Python SDK whether to try again.
pub(crate) const SHOULD_RETRY: HeaderName = HeaderName::from_static("should-retry");

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            code: i32::from(self.status.as_u16()),
            message: self.message,
            error_code: self.error_code.map(str::to_owned),
        };
        let text = serde_json::to_vec(&body).unwrap_or_else(|_| b"{\"code\":500,\"message\":\"\"}".to_vec());
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in self.headers {
            response.headers_mut().append(name, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_causes_and_the_answer_has_not() {
        let cause = std::io::Error::other("the disk is full");
        let error = Error::new(ErrorKind::Unexpected, "store", "the store failed").with_source(cause);
        assert!(chain(&error).contains("the store failed") && chain(&error).contains(": the disk is full"));
        assert_eq!(ApiError::from(error).message, "the store failed");
    }
}
