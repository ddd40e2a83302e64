//! The control plane: E2B's REST API.

pub(crate) mod extract;
mod health;
mod sandboxes;
mod secrets;
mod templates;
mod volumes;

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri};

use crate::app::App;
use crate::error::ApiError;

pub(crate) use sandboxes::{Admissions, Turns, sampler};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use templates::fuzzing as template_fuzzing;
pub(crate) use templates::{Reference, ResolvedTemplate, TemplateOwner, TemplateWork};
pub(crate) use volumes::Rooms;

/// All routes of the control plane.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .merge(health::routes())
        .merge(sandboxes::routes())
        .merge(templates::routes())
        .merge(volumes::routes())
        .merge(secrets::routes())
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .with_state(app)
}

async fn unknown(method: Method, uri: Uri) -> Response {
    ApiError::not_found(format!("no such endpoint: {method} {}", uri.path())).into_response()
}

async fn not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("{method} is not allowed on {}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).into_response()
}
