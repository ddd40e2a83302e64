//! Sandboxes: made, found, ended, and all between.

mod admission;
mod answer;
mod create;
mod egress;
mod filter;
mod list;
mod one;
mod page;
mod plan;
mod seconds;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::app::App;

pub(crate) use admission::Admissions;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v2/sandboxes", post(create::v2).get(list::v2))
        .route("/sandboxes", post(create::v1).get(list::v1))
        .route("/sandboxes/{id}", get(one::detail).delete(one::kill))
}
