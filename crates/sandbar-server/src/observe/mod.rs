//! What is said of requests: an id, a line in the log, and counts.

mod asked;
mod counts;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue};
use tracing::Instrument as _;
use uuid::Uuid;

use crate::app::App;
use crate::limits::RateSlot;
use crate::tenant::TenantSlot;

pub(crate) use asked::Asked;
pub(crate) use counts::{Counts, Plane, scrape, scrape_here};

/// Response header with the id under which the log has a request.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Counts and logs a request of the control plane. Neither its query nor its headers are told: tokens stand in them.
pub(crate) async fn control_plane(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = Uuid::now_v7();
    let (rate, tenant) = (RateSlot::default(), TenantSlot::default());
    request.extensions_mut().insert(rate.clone());
    request.extensions_mut().insert(tenant.clone());
    let method = request.method().clone();
    // The pattern, not the path: ids in it would make a series each.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("unknown".to_owned(), |path| path.as_str().to_owned());
    // Of an address for an upload the path is the right to it.
    let path = if route.starts_with("/uploads") { route.clone() } else { request.uri().path().to_owned() };
    let span = tracing::info_span!("request", %id);
    let mut response = next.run(request).instrument(span).await;
    let status = response.status();
    rate.write(response.headers_mut());
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    app.counts.answered(Plane::Control, &route, status, begun.elapsed());
    let key = tenant.get().map(|tenant| tenant.key.as_str());
    let millis = begun.elapsed().as_millis();
    if status.is_server_error() {
        tracing::warn!(request = %id, %method, path, status = status.as_u16(), millis, key, "answered");
    } else {
        tracing::info!(request = %id, %method, path, status = status.as_u16(), millis, key, "answered");
    }
    response
}
