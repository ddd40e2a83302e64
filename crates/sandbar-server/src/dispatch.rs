//! Where a request goes: to a guest, to a port inside a sandbox, or to the control plane.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::Request;
use tower::ServiceExt as _;

use crate::app::App;
use crate::guest::{self, Route};
use crate::listen::timed;

/// How long the sender of a body for the control plane may pause. Those for sandboxes may as long as the sandbox may: input to a program comes
/// when somebody types it.
const CONTROL_PAUSE: Duration = Duration::from_secs(30);

/// Answers any request.
pub(crate) async fn dispatch(app: Arc<App>, control: Router, request: Request<Body>) -> Response {
    let route = app.names.route(request.method(), request.uri(), request.headers());
    let pause = if matches!(route, Ok(Route::Control)) { CONTROL_PAUSE } else { guest::SILENCE };
    let request = request.map(|body| timed(body, pause));
    match route {
        Ok(Route::Sandbox { id, port }) => guest::serve(&app, &id, port, request).await,
        Ok(Route::Signed) => guest::serve_signed(&app, request).await,
        Ok(Route::Control) => match control.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        Err(error) => error.into_response(),
    }
}
