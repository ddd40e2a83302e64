use std::fmt;
use std::time::SystemTime;

use crate::{Outcome, SpanContext};

/// Takes spans of operations that ended. Must not wait: what it can't take it drops, and counts.
pub trait SpanSink: Send + Sync + fmt::Debug {
    /// Takes one.
    fn take(&self, span: FinishedSpan);
}

/// An operation that ended.
#[derive(Clone, Debug)]
pub struct FinishedSpan {
    /// What was done, such as `create`.
    pub name: String,
    /// Its place in the trace.
    pub context: SpanContext,
    /// When it began.
    pub started: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// How it ended.
    pub outcome: Outcome,
    /// Of which kind its error was.
    pub error: Option<String>,
    /// What there is to say: short texts by name, nothing that the audit record leaves out.
    pub attributes: Vec<(&'static str, String)>,
}
