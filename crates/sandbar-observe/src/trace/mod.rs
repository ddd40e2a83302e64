//! W3C Trace Context (<https://www.w3.org/TR/trace-context/>): taken from whoever calls, passed on to what runs inside.

mod context;
mod id;
mod scope;
mod state;

#[cfg(test)]
mod tests;

pub use context::{SpanContext, TraceContext};
pub use id::{SpanId, TraceId};
pub use state::TraceState;
