//! The only place that reads the environment. What else the `OTEL_…` variables say is read by OpenTelemetry's own crates.

/// The variables that say where the collector is; the first that is set counts.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Where the collector is, as far as the environment says.
pub(crate) fn collector() -> Option<String> {
    ENDPOINTS.into_iter().find_map(|name| std::env::var(name).ok().filter(|url| !url.is_empty()))
}
