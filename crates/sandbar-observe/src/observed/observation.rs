use std::sync::Arc;

use sandbar_core::{Command, EnvVars, ProjectId, SandboxId};
use serde_json::{Map, Value};

use crate::event::details;
use crate::{AuditLog, SpanContext, SpanSink, TraceContext};

/// The variable that passes a trace on to a process.
const TRACEPARENT: &str = "TRACEPARENT";
/// The variable that passes on what vendors have to say.
const TRACESTATE: &str = "TRACESTATE";

/// What is told of the operations on sandboxes, and to whom. Empty: only the trace is passed on.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    pub(crate) audit: Option<AuditLog>,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) actor: Option<String>,
    pub(crate) arguments: Arguments,
    pub(crate) spans: Option<Arc<dyn SpanSink>>,
}

/// What the record tells of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arguments {
    /// The program and its arguments, within bounds. Secrets do not belong there: every process of the sandbox can read them.
    #[default]
    Whole,
    /// The program alone, and how many arguments it had.
    ProgramOnly,
}

impl Observation {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The audit record that operations are written to.
    pub fn audit(&self) -> Option<&AuditLog> {
        self.audit.as_ref()
    }

    /// Writes operations to an audit record.
    pub fn with_audit(mut self, log: AuditLog) -> Self {
        self.audit = Some(log);
        self
    }

    /// The trace that operations belong to which are not done in a [`TraceContext::scope`]. Without one each of those begins a trace.
    pub fn with_trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Names who acts, beside process and user.
    pub fn with_actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// Sets what is told of a command.
    pub fn with_arguments(mut self, arguments: Arguments) -> Self {
        self.arguments = arguments;
        self
    }

    /// Hands finished spans to `sink`.
    pub fn with_spans(mut self, sink: Arc<dyn SpanSink>) -> Self {
        self.spans = Some(sink);
        self
    }

    /// A span for an operation that begins in this task.
    pub(crate) fn span(&self) -> SpanContext {
        TraceContext::current().or_else(|| self.trace.clone()).unwrap_or_else(TraceContext::begin).span()
    }

    /// What is told of `command`.
    pub(crate) fn command(&self, command: &Command, detail: &mut Map<String, Value>) {
        match self.arguments {
            Arguments::Whole => details::command(command, detail),
            Arguments::ProgramOnly => {
                details::command(&Command::new(command.program()), detail);
                detail.insert("argc".into(), command.argv().len().into());
            }
        }
    }
}

/// Passes the span on to a process, unless the call itself says what that is to have.
pub(super) fn pass_on(span: &SpanContext, env: &mut EnvVars) {
    if env.get(TRACEPARENT).is_some() {
        return;
    }
    // Both are short and plain text, so they are always taken.
    let _ = env.insert(TRACEPARENT, span.traceparent());
    if !span.state().is_empty() && env.get(TRACESTATE).is_none() {
        let _ = env.insert(TRACESTATE, span.state().as_str());
    }
}

/// What an operation is on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    pub(crate) sandbox: Option<SandboxId>,
    pub(crate) project: Option<ProjectId>,
}
