//! The control plane: E2B's REST API.

pub(crate) mod extract;
mod health;
mod sandboxes;
mod secrets;
mod teams;
mod templates;
mod volumes;

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{Method, StatusCode, Uri};

use crate::app::App;
use crate::error::ApiError;
use crate::observe;

pub(crate) use sandboxes::{Admissions, Turns, sampler};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use templates::fuzzing as template_fuzzing;
pub(crate) use templates::{Reference, ResolvedTemplate, TemplateOwner, TemplateWork};
pub(crate) use volumes::Rooms;

/// All routes of the control plane.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    if app.tells_counts() {
        router = router.route("/metrics", get(observe::scrape));
    }
    router
        .merge(health::routes())
        .merge(sandboxes::routes())
        .merge(templates::routes())
        .merge(teams::routes())
        .merge(volumes::routes())
        .merge(secrets::routes())
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), observe::control_plane))
        .with_state(app)
}

async fn unknown(method: Method, uri: Uri) -> Response {
    ApiError::not_found(format!("no such endpoint: {method} {}", uri.path())).into_response()
}

async fn not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("{method} is not allowed on {}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).into_response()
}
