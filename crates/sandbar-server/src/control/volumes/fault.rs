use axum::response::{IntoResponse, Response};
use http::StatusCode;
use sandbar_core::{Error, ErrorKind};
use sandbar_wire::e2b::VolumeErrorBody;

use crate::error::ApiError;

/// The result of a request for the content of a volume.
pub(super) type FaultResult<T> = Result<T, Fault>;

/// An error of the content of a volume, whose code is a word.
#[derive(Debug)]
pub(super) struct Fault {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Fault {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let code = match status {
            StatusCode::BAD_REQUEST => "invalid_argument",
            StatusCode::UNAUTHORIZED => "unauthenticated",
            StatusCode::FORBIDDEN => "permission_denied",
            StatusCode::NOT_FOUND => "not_found",
            StatusCode::CONFLICT => "already_exists",
            StatusCode::PAYLOAD_TOO_LARGE => "resource_exhausted",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable",
            StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => "deadline_exceeded",
            _ => "internal",
        };
        Self { status, code, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Self {
        Self::new(error.status, error.message)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error.kind() {
            // The sandbox that serves it is busy or gone: nothing is wrong with the request.
            ErrorKind::Conflict | ErrorKind::Unavailable => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("{}: try again", error.message()))
            }
            _ => ApiError::from(error).into(),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let body = VolumeErrorBody { code: self.code.to_owned(), message: self.message };
        (self.status, axum::Json(body)).into_response()
    }
}
