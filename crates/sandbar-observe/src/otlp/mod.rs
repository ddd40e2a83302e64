//! Spans to an OpenTelemetry collector, by OTLP over plain HTTP.
//!
//! The collector is where the standard variables say: `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, with
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`. It runs on this machine or is reached by an address: there
//! is no TLS here, and no name but `localhost` is looked up. A collector beside this program does both better.
//!
//! Nothing here ever fails an operation: what can't be sent is dropped, and counted.

mod client;
mod convert;
mod exporter;

pub use exporter::{OtlpConfig, OtlpExporter};
