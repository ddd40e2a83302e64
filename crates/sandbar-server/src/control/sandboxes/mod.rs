//! Sandboxes: made, found, ended, and all between.

mod admission;
mod answer;
mod connect;
mod create;
mod egress;
mod filter;
mod fork;
mod idempotency;
mod lifetime;
mod list;
mod logs;
mod metrics;
mod network;
mod one;
mod page;
mod pause;
mod plan;
pub(crate) mod sampler;
mod seconds;
mod turns;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post, put};

use crate::app::App;

pub(crate) use admission::Admissions;
pub(crate) use turns::Turns;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v2/sandboxes", post(create::v2).get(list::v2))
        .route("/sandboxes", post(create::v1).get(list::v1))
        .route("/sandboxes/metrics", get(metrics::of_many))
        .route("/sandboxes/{id}", get(one::detail).delete(one::kill))
        .route("/v2/sandboxes/{id}/connect", post(connect::v2))
        .route("/sandboxes/{id}/connect", post(connect::v1))
        .route("/sandboxes/{id}/resume", post(connect::resume))
        .route("/sandboxes/{id}/timeout", post(lifetime::timeout))
        .route("/sandboxes/{id}/refreshes", post(lifetime::refresh))
        .route("/sandboxes/{id}/pause", post(pause::pause))
        .route("/sandboxes/{id}/fork", post(fork::fork))
        .route("/sandboxes/{id}/network", put(network::put))
        .route("/sandboxes/{id}/metrics", get(metrics::of_one))
        .route("/sandboxes/{id}/logs", get(logs::v1))
        .route("/v2/sandboxes/{id}/logs", get(logs::v2))
}
