use std::fmt;

use super::id::digit;
use super::{SpanId, TraceId, TraceState};

/// The flags that are passed on: sampled, and that the trace id is random. Others have no meaning yet and are to be zero.
const KNOWN_FLAGS: u8 = 0x03;
/// A trace that begins here is recorded, as far as anybody asked for a record at all.
const SAMPLED: u8 = 0x01;
/// Length of version 00; a later version has at least this much and begins alike.
const LENGTH: usize = 55;

/// Where an operation comes from: a trace and, unless it begins here, the span that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: TraceId,
    parent: Option<SpanId>,
    flags: u8,
    state: TraceState,
}

impl TraceContext {
    /// A new trace.
    pub fn begin() -> Self {
        Self { trace: TraceId::random(), parent: None, flags: SAMPLED, state: TraceState::default() }
    }

    /// What a `traceparent` and a `tracestate` say; `None` where the first is not valid. A `tracestate` that is not valid is dropped alone.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let text = traceparent.trim_matches([' ', '\t']).as_bytes();
        let head = std::str::from_utf8(text.get(..LENGTH)?).ok()?;
        let mut fields = head.split('-');
        let version = byte(fields.next()?)?;
        let rest = &text[LENGTH..];
        // Version 255 is forbidden; a later version may have more fields, version 0 may not.
        if version == 0xff || (version == 0 && !rest.is_empty()) || (!rest.is_empty() && rest[0] != b'-') {
            return None;
        }
        let trace = TraceId::parse(fields.next()?)?;
        let parent = SpanId::parse(fields.next()?)?;
        let flags = byte(fields.next()?)? & KNOWN_FLAGS;
        if fields.next().is_some() {
            return None;
        }
        let state = tracestate.and_then(TraceState::parse).unwrap_or_default();
        Some(Self { trace, parent: Some(parent), flags, state })
    }

    /// What a caller gave, by the rules of the W3C: what is absent or not valid begins a new trace, and is never an error.
    pub fn from_caller(traceparent: Option<&str>, tracestate: Option<&str>) -> Self {
        traceparent.and_then(|text| Self::parse(text, tracestate)).unwrap_or_else(Self::begin)
    }

    /// The trace.
    pub fn trace_id(&self) -> TraceId {
        self.trace
    }

    /// The span that caused it; `None` where the trace begins here.
    pub fn parent(&self) -> Option<SpanId> {
        self.parent
    }

    /// What passes it on as it is; `None` where the trace has no span yet.
    pub fn traceparent(&self) -> Option<String> {
        self.parent.map(|parent| format!("00-{}-{parent}-{:02x}", self.trace, self.flags))
    }

    /// A new span below it.
    pub fn span(&self) -> SpanContext {
        SpanContext {
            trace: self.trace,
            id: SpanId::random(),
            parent: self.parent,
            flags: self.flags,
            state: self.state.clone(),
        }
    }
}

/// A span: one operation of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanContext {
    trace: TraceId,
    id: SpanId,
    parent: Option<SpanId>,
    flags: u8,
    state: TraceState,
}

impl SpanContext {
    /// The trace.
    pub fn trace_id(&self) -> TraceId {
        self.trace
    }

    /// The span's own id.
    pub fn id(&self) -> SpanId {
        self.id
    }

    /// The span above it.
    pub fn parent(&self) -> Option<SpanId> {
        self.parent
    }

    /// The flags to pass on.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether whoever began the trace wants it recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// What vendors pass along.
    pub fn state(&self) -> &TraceState {
        &self.state
    }

    /// For what it causes.
    pub fn context(&self) -> TraceContext {
        TraceContext {
            trace: self.trace,
            parent: Some(self.id),
            flags: self.flags,
            state: self.state.clone(),
        }
    }

    /// The value to pass on as `traceparent`.
    pub fn traceparent(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.id, self.flags)
    }
}

fn byte(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}
