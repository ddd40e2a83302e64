//! Requests for what is inside a sandbox: its guest's own API, and its ports.

mod route;

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode};

use crate::app::App;
use crate::error::ApiError;

pub(crate) use route::{Route, route};

/// What is kept of sandboxes that were asked for: handles, marks and idle connections.
#[derive(Debug, Default)]
pub(crate) struct Guests {}

/// Answers a request for port `port` of the sandbox `id`.
#[allow(clippy::unused_async)]
pub(crate) async fn serve(_app: &Arc<App>, _id: &str, _port: u16, _request: Request<Body>) -> Response {
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "requests to guests are not served yet").into_response()
}
