//! Templates: their names, tags and builds, and snapshots, which are templates of sandboxes.

mod copy;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod list;
mod name;
mod order;
mod path;
mod plan;
mod probe;
mod register;
mod resolve;
mod run;
mod snapshots;
mod status;
mod tags;
mod upload;
mod work;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, patch, post, put};

use crate::app::App;

pub(crate) use name::Reference;
pub(crate) use resolve::ResolvedTemplate;
pub(crate) use work::TemplateWork;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v3/templates", post(register::register))
        .route("/v2/templates", get(list::all).post(register::register))
        .route("/templates", get(list::all))
        .route("/templates/{id}", get(list::one).patch(list::update_v1).delete(list::delete))
        .route("/v2/templates/{id}", patch(list::update))
        .route("/templates/{id}/files/{hash}", get(upload::link))
        .route("/uploads/{token}", put(upload::put))
        .route("/v2/templates/{id}/builds/{build}", post(work::start))
        .route("/templates/{id}/builds/{build}/status", get(status::status))
        .route("/templates/{id}/builds/{build}/logs", get(status::logs))
        .route("/templates/aliases/{alias}", get(list::alias))
        .route("/templates/tags", post(tags::assign).delete(tags::delete))
        .route("/templates/{id}/tags", get(tags::list))
        .route("/sandboxes/{id}/snapshots", post(snapshots::create))
        .route("/snapshots", get(snapshots::list))
}
