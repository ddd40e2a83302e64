use std::borrow::Cow;

use jiff::Timestamp;
use sandbar_core::{ErrorKind, ProjectId, SandboxId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Actor;
use crate::{SpanContext, SpanId, TraceId};

/// The version of the form of [`Event`]. Keys are added within a version; one that changes its meaning makes another.
pub const FORMAT_VERSION: u32 = 1;

/// One line of the audit record. Holds no content of files, no input or output of commands, no value of an environment variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Version of this form.
    pub v: u32,
    /// When, in UTC with milliseconds.
    pub at: Timestamp,
    /// What was done, such as `create` or `read`.
    pub op: Cow<'static, str>,
    /// Whether it begins, ends, or just is.
    pub phase: Phase,
    /// On which sandbox; absent where there is none (yet).
    pub sandbox: Option<SandboxId>,
    /// Of which project; absent where it has none or it is not known.
    pub project: Option<ProjectId>,
    /// In which backend.
    pub backend: Cow<'static, str>,
    /// By whom.
    pub actor: Actor,
    /// How it ended; absent at the beginning.
    pub outcome: Option<Outcome>,
    /// Of which kind the error is, where it ended with one.
    pub error: Option<Cow<'static, str>>,
    /// How long it took in seconds, at the end.
    pub duration: Option<f64>,
    /// The trace that it belongs to.
    pub trace: Option<TraceId>,
    /// Its span: the lines of one operation have the same one.
    pub span: Option<SpanId>,
    /// The span that caused it.
    pub parent: Option<SpanId>,
    /// What there is to say of this kind of operation.
    pub detail: Map<String, Value>,
}

/// Where in an operation a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It is about to begin.
    Begin,
    /// It ended.
    End,
    /// It happened.
    Note,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    Ok,
    /// It answered an error.
    Error,
    /// Nobody waited for its end, or the end could not be observed.
    Unknown,
}

impl Event {
    /// Something that happened just now.
    pub fn note(
        op: impl Into<Cow<'static, str>>,
        backend: impl Into<Cow<'static, str>>,
        actor: Actor,
    ) -> Self {
        Self {
            v: FORMAT_VERSION,
            at: now(),
            op: op.into(),
            phase: Phase::Note,
            sandbox: None,
            project: None,
            backend: backend.into(),
            actor,
            outcome: None,
            error: None,
            duration: None,
            trace: None,
            span: None,
            parent: None,
            detail: Map::new(),
        }
    }

    /// On this sandbox.
    pub fn with_sandbox(mut self, id: &SandboxId, project: Option<&ProjectId>) -> Self {
        self.sandbox = Some(id.clone());
        self.project = project.cloned();
        self
    }

    /// As this span.
    pub fn with_span(mut self, span: &SpanContext) -> Self {
        self.trace = Some(span.trace_id());
        self.span = Some(span.id());
        self.parent = span.parent();
        self
    }

    /// With a detail.
    pub fn with_detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.detail.insert(key.to_owned(), value.into());
        self
    }

    /// With its outcome: an error counts by its kind, and its text stays out.
    pub fn with_result<T>(mut self, result: &sandbar_core::Result<T>) -> Self {
        self.set_result(result);
        self
    }

    pub(crate) fn set_result<T>(&mut self, result: &sandbar_core::Result<T>) {
        self.outcome = Some(if result.is_ok() { Outcome::Ok } else { Outcome::Error });
        self.error = result.as_ref().err().map(|error| kind_name(error.kind()));
    }
}

/// The time, to the millisecond.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

fn kind_name(kind: ErrorKind) -> Cow<'static, str> {
    match serde_json::to_value(kind) {
        Ok(Value::String(name)) => name.into(),
        _ => "unexpected".into(),
    }
}
