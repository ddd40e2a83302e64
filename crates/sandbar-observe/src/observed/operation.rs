use std::sync::Arc;
use std::time::{Instant, SystemTime};

use sandbar_core::{Error, ErrorKind, ProjectId, Result, Retry, SandboxId};
use serde_json::{Map, Value};

use super::{Observation, Target};
use crate::event::now;
use crate::{Actor, AuditMode, Event, FinishedSpan, Outcome, Phase, Role, SpanContext};

tokio::task_local! {
    static ACTOR: Option<String>;
}

/// The name of whoever acts, in work that an [`Observed`](crate::Observed) provider passes on.
pub fn current_actor() -> Option<String> {
    ACTOR.try_with(Clone::clone).ok().flatten()
}

/// An operation that is going on. Its beginning was recorded; its end will be, and if nobody sees to that, then that it is unknown.
#[derive(Debug)]
pub(crate) struct Operation {
    observation: Arc<Observation>,
    span: SpanContext,
    event: Event,
    started: Instant,
    started_at: SystemTime,
    is_over: bool,
}

impl Operation {
    /// Records that `op` begins. Where a record is required and can't be written, that is the error, and the operation must not begin.
    pub(crate) async fn begin(
        observation: &Arc<Observation>,
        backend: &'static str,
        op: &'static str,
        target: &Target,
        detail: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<Self> {
        let mut operation = Self::new(observation, backend, op, target, detail);
        if let Err(unrecorded) = operation.tell(Phase::Begin).await {
            // What never began has no end.
            operation.is_over = true;
            return Err(unrecorded);
        }
        Ok(operation)
    }

    /// As [`Operation::begin`], for what ends a sandbox: nothing may keep that from its end.
    pub(crate) async fn begin_end(
        observation: &Arc<Observation>,
        backend: &'static str,
        op: &'static str,
        target: &Target,
    ) -> Self {
        let operation = Self::new(observation, backend, op, target, |_| {});
        // The loss is counted.
        let _ = operation.tell(Phase::Begin).await;
        operation
    }

    fn new(
        observation: &Arc<Observation>,
        backend: &'static str,
        op: &'static str,
        target: &Target,
        detail: impl FnOnce(&mut Map<String, Value>),
    ) -> Self {
        let span = observation.span();
        let actor = Actor::this_process(Role::Caller, observation.actor.as_deref());
        let mut event = Event::note(op, backend, actor).with_span(&span);
        event.sandbox.clone_from(&target.sandbox);
        event.project.clone_from(&target.project);
        detail(&mut event.detail);
        Self {
            observation: Arc::clone(observation),
            span,
            event,
            started: Instant::now(),
            started_at: SystemTime::now(),
            is_over: false,
        }
    }

    /// Its place in the trace.
    pub(crate) fn span(&self) -> &SpanContext {
        &self.span
    }

    /// Does `work` as what this operation causes.
    pub(crate) async fn cause<T>(&self, work: impl Future<Output = T>) -> T {
        let work = self.span.context().scope(work);
        ACTOR.scope(self.event.actor.name.clone(), work).await
    }

    /// Says which sandbox it turned out to be on.
    pub(crate) fn set_sandbox(&mut self, id: &SandboxId, project: Option<&ProjectId>) {
        self.event.sandbox = Some(id.clone());
        self.event.project = project.cloned();
    }

    /// Adds to what is told of its end; what was told of its beginning is not repeated.
    pub(crate) fn detail(&mut self, key: &str, value: impl Into<Value>) {
        self.event.detail.insert(key.to_owned(), value.into());
    }

    /// As [`Operation::detail`], for several.
    pub(crate) fn details(&mut self, add: impl FnOnce(&mut Map<String, Value>)) {
        add(&mut self.event.detail);
    }

    /// Records the end and answers the result. Where that can't be recorded and has to be, the answer says so: the operation itself is done.
    pub(crate) async fn end<T>(mut self, result: Result<T>) -> Result<T> {
        self.event.set_result(&result);
        self.is_over = true;
        let told = self.tell(Phase::End).await;
        match (result, told) {
            (Ok(value), Ok(())) => Ok(value),
            (Ok(_), Err(unrecorded)) => Err(unended(self.event.op.as_ref(), unrecorded)),
            // Its own error is what the caller has to know; the loss is counted.
            (Err(error), _) => Err(error),
        }
    }

    /// As [`Operation::end`], where the answer stands whatever becomes of the record.
    pub(crate) async fn end_regardless<T>(mut self, result: Result<T>) -> Result<T> {
        self.event.set_result(&result);
        self.is_over = true;
        let _ = self.tell(Phase::End).await;
        result
    }

    /// As [`Operation::end_regardless`], where nothing can be waited for.
    pub(crate) fn end_at_once<T>(mut self, result: &Result<T>) {
        self.event.set_result(result);
        self.finish();
    }

    fn finish(&mut self) {
        self.is_over = true;
        let event = self.at(Phase::End);
        self.hand_over();
        if let Some(log) = &self.observation.audit {
            // The loss is counted.
            let _ = log.append(&event);
        }
    }

    async fn tell(&self, phase: Phase) -> Result<()> {
        if phase == Phase::End {
            self.hand_over();
        }
        self.write(self.at(phase)).await
    }

    fn at(&self, phase: Phase) -> Event {
        let mut event = self.event.clone();
        event.phase = phase;
        event.at = now();
        if phase == Phase::End {
            event.duration = Some(rounded(self.started.elapsed().as_secs_f64()));
        }
        event
    }

    async fn write(&self, event: Event) -> Result<()> {
        let Some(log) = &self.observation.audit else { return Ok(()) };
        match (log.record(event).await, log.config().mode) {
            (Err(error), AuditMode::Required) => Err(error),
            // In the other mode the loss is counted, and told later.
            (Err(_), AuditMode::BestEffort) | (Ok(()), _) => Ok(()),
        }
    }

    /// Hands the span over, if whoever began the trace wants it.
    fn hand_over(&self) {
        let Some(sink) = self.observation.spans.as_ref().filter(|_| self.span.is_sampled()) else { return };
        let mut attributes = vec![("sandbar.backend", self.event.backend.to_string())];
        if let Some(id) = &self.event.sandbox {
            attributes.push(("sandbar.sandbox.id", id.to_string()));
        }
        if let Some(project) = &self.event.project {
            attributes.push(("sandbar.project", project.to_string()));
        }
        if let Some(actor) = &self.event.actor.name {
            attributes.push(("sandbar.actor", actor.clone()));
        }
        for (key, name) in ATTRIBUTES {
            match self.event.detail.get(*key) {
                Some(Value::String(text)) => attributes.push((name, text.clone())),
                Some(value) => attributes.push((name, value.to_string())),
                None => {}
            }
        }
        sink.take(FinishedSpan {
            name: self.event.op.to_string(),
            context: self.span.clone(),
            started: self.started_at,
            ended: SystemTime::now(),
            outcome: self.event.outcome.unwrap_or(Outcome::Unknown),
            error: self.event.error.as_ref().map(ToString::to_string),
            attributes,
        });
    }
}

/// Details that spans have too, and their names there. Arguments and environment are not among them: spans travel.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("path", "sandbar.path"),
    ("bytes", "sandbar.bytes"),
    ("pid", "sandbar.pid"),
    ("port", "sandbar.port"),
    ("status", "sandbar.status"),
    ("code", "sandbar.exit_code"),
    ("signal", "sandbar.signal"),
    ("cause", "sandbar.cause"),
];

impl Drop for Operation {
    /// Its caller gave it up, so nobody knows how it ended.
    fn drop(&mut self) {
        if !self.is_over {
            self.event.outcome = Some(Outcome::Unknown);
            self.finish();
        }
    }
}

/// Microseconds: what is below is noise.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

fn unended(op: &str, unrecorded: Error) -> Error {
    let message = format!("`{op}` was done, but its end can't be recorded: {}", unrecorded.message());
    Error::new(ErrorKind::Unavailable, "audit", message)
        .with_resource("audit record")
        .with_hint(unrecorded.hint().unwrap_or_default())
        .with_retry(Retry::OutcomeUnknown)
        .with_source(unrecorded)
}
