use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri, header};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use sandbar_core::{ProviderExt as _, Query};

use crate::app::App;
use crate::error::ApiError;
use crate::guest::Names;
use crate::marks::Marks;

/// First limit of a class of durations, in seconds: below that the kernel's own work counts most.
const FIRST_BUCKET: f64 = 0.000_5;

/// Classes of durations, each four times the one before: up to about half a minute.
const BUCKETS: u16 = 9;

/// The media type of the answer (`OpenMetrics` 1.0).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Plane {
    /// The control plane.
    Control,
    /// A guest's own API.
    Guest,
    /// A port inside a sandbox.
    Port,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    plane: Plane,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPlane {
    plane: Plane,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: String,
}

/// What is counted, for Prometheus. No id, key or tenant is among it.
#[derive(Debug)]
pub(crate) struct Counts {
    registry: Registry,
    requests: Family<Answered, Counter>,
    durations: Family<OfPlane, Histogram>,
    connections: Gauge,
    sandboxes: Family<InState, Gauge>,
}

impl Default for Counts {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("sandbar");
        let requests = Family::<Answered, Counter>::default();
        registry.register("requests", "Requests that were answered", requests.clone());
        let durations = Family::<OfPlane, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(FIRST_BUCKET, 4.0, BUCKETS))
        });
        let help = "Time to the head of the answer";
        registry.register_with_unit("request_duration", help, Unit::Seconds, durations.clone());
        let connections = Gauge::default();
        registry.register("connections", "Connections of clients now", connections.clone());
        let sandboxes = Family::<InState, Gauge>::default();
        registry.register("sandboxes", "Sandboxes of this server now", sandboxes.clone());
        Self { registry, requests, durations, connections, sandboxes }
    }
}

impl Counts {
    /// Counts an answer. `route` is a pattern, never a path: each is a series.
    pub(crate) fn answered(&self, plane: Plane, route: &str, status: StatusCode, took: Duration) {
        let label = Answered { plane, route: route.to_owned(), status: status.as_u16() };
        self.requests.get_or_create(&label).inc();
        self.durations.get_or_create(&OfPlane { plane }).observe(took.as_secs_f64());
    }

    /// Counts a connection for as long as what it answers lives.
    pub(crate) fn connected(&self) -> Connected {
        self.connections.inc();
        Connected(self.connections.clone())
    }
}

/// A connection that is counted.
#[derive(Debug)]
pub(crate) struct Connected(Gauge);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Answers a scrape. Without names of anybody; still only where the server is reached from this machine alone, or at an address of its own.
pub(crate) async fn scrape(State(app): State<Arc<App>>) -> Response {
    match render(&app).await {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => error.into_response(),
    }
}

/// The same beside the control plane, for this machine: a proxy on it asks for others.
pub(crate) async fn scrape_here(state: State<Arc<App>>, uri: Uri, headers: HeaderMap) -> Response {
    if Names::is_from_here(&uri, &headers) {
        return scrape(state).await;
    }
    let message =
        "counts are for this machine alone: give them an address of their own with --metrics-listen";
    ApiError::new(StatusCode::FORBIDDEN, message).into_response()
}

async fn render(app: &App) -> Result<String, ApiError> {
    let mut states: BTreeMap<String, i64> = BTreeMap::new();
    for record in app.provider.list_all(Query::new()).await? {
        if Marks::of(&record).is_some_and(|marks| !marks.is_internal) {
            *states.entry(record.state.to_string()).or_default() += 1;
        }
    }
    let counts = &app.counts;
    counts.sandboxes.clear();
    for (state, number) in states {
        counts.sandboxes.get_or_create(&InState { state }).set(number);
    }
    let mut out = String::new();
    text::encode(&mut out, &counts.registry)
        .or_else(|_| out.write_str("# the counts could not be written\n"))
        .map_err(|_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the counts could not be written"))?;
    Ok(out)
}
