use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use crate::app::App;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new().route("/health", get(async || "OK"))
}
