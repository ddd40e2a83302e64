//! Where a request goes: to a guest, to a port inside a sandbox, or to the control plane.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::Request;
use http::header::EXPECT;
use tower::ServiceExt as _;

use crate::app::App;
use crate::guest::{self, Route};
use crate::listen::timed;
use crate::observe::Asked;

/// How long the sender of a body for the control plane may pause. Those for sandboxes may as long as the sandbox may: input to a program comes
/// when somebody types it.
const CONTROL_PAUSE: Duration = Duration::from_secs(30);

/// Answers any request.
pub(crate) async fn dispatch(app: Arc<App>, control: Router, request: Request<Body>) -> Response {
    let mut route = app.names.route(request.method(), request.uri(), request.headers());
    if matches!(route, Ok(Route::Control))
        && let Err(error) = app.names.admit(request.uri(), request.headers())
    {
        route = Err(error);
    }
    let asked = Asked::of(&route, &request);
    let pause = if matches!(route, Ok(Route::Control)) { CONTROL_PAUSE } else { guest::SILENCE };
    let owner = Arc::clone(&app);
    // Who waits for a word before it sends a body sends none after an answer.
    let waits = request.headers().contains_key(EXPECT);
    let request = request.map(|body| {
        timed(body, pause, move |rest| {
            if !waits {
                owner.guests.spawn(rest);
            }
        })
    });
    let response = match route {
        Ok(Route::Sandbox { id, port }) => guest::serve(&app, &id, port, request).await,
        Ok(Route::Signed) => guest::serve_signed(&app, request).await,
        // Counts itself, since it knows its patterns.
        Ok(Route::Control) => match control.oneshot(request).await {
            Ok(response) => return response,
            Err(never) => match never {},
        },
        Err(error) => error.into_response(),
    };
    asked.answered(&app, response.status());
    response
}
