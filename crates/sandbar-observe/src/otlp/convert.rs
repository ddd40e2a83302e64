use std::str::FromStr;

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::{FinishedSpan, Outcome};

/// A span as the exporter wants it.
pub(super) fn convert(span: FinishedSpan) -> SpanData {
    let FinishedSpan { name, context, started, ended, outcome, error, attributes } = span;
    let parent = context.parent().map_or(SpanId::INVALID, |id| SpanId::from_bytes(id.to_bytes()));
    let mut attributes: Vec<_> =
        attributes.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
    let status = match (outcome, error) {
        (Outcome::Ok, _) => Status::Ok,
        (Outcome::Error, kind) => {
            let kind = kind.unwrap_or_default();
            attributes.push(KeyValue::new("error.type", kind.clone()));
            Status::error(kind)
        }
        // Neither a success nor known to be an error.
        (Outcome::Unknown, _) => {
            attributes.push(KeyValue::new("sandbar.outcome", "unknown"));
            Status::Unset
        }
    };
    SpanData {
        span_context: SpanContext::new(
            TraceId::from_bytes(context.trace_id().to_bytes()),
            SpanId::from_bytes(context.id().to_bytes()),
            TraceFlags::new(context.flags()),
            false,
            TraceState::from_str(context.state().as_str()).unwrap_or_default(),
        ),
        parent_span_id: parent,
        parent_span_is_remote: parent != SpanId::INVALID,
        span_kind: SpanKind::Client,
        name: format!("sandbar {name}").into(),
        start_time: started,
        end_time: ended,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status,
        instrumentation_scope: InstrumentationScope::builder("sandbar")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}
