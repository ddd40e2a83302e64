//! Secrets: there are none here, and who asks for them is told what to do instead.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use crate::app::App;
use crate::error::ApiError;
use crate::tenant::Tenant;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/secrets", get(refuse).post(refuse))
        .route("/secrets/{id}", get(refuse).post(refuse).delete(refuse))
}

async fn refuse(_: Tenant) -> ApiError {
    ApiError::bad_request(
        "secrets are not available here: nothing was stored; give a sandbox what it needs by envVars, or as headers by network rules",
    )
}
