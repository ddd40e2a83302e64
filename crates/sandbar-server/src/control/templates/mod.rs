//! Templates: their names, tags and builds.

mod name;
mod resolve;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

pub(crate) use name::Reference;
pub(crate) use resolve::{ResolvedTemplate, TENANT_PREFIX, TemplateOwner};

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
}
