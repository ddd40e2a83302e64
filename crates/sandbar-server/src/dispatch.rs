//! Where a request goes: to a guest, to a port inside a sandbox, or to the control plane.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::Request;
use tower::ServiceExt as _;

use crate::app::App;
use crate::guest::{self, Route};

/// Answers any request.
pub(crate) async fn dispatch(app: Arc<App>, control: Router, request: Request<Body>) -> Response {
    match guest::route(&app, &request) {
        Ok(Some(Route { id, port })) => guest::serve(&app, &id, port, request).await,
        Ok(None) => match control.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        Err(error) => error.into_response(),
    }
}
