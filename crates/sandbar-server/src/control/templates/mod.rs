mod resolve;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

pub(crate) use resolve::ResolvedTemplate;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
}
