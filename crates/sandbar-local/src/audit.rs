//! What the audit record is told of a sandbox with nobody looking: kills by its limits, the take-over by another shim, its end.

use sandbar_core::{EndCause, KillCause, Result};
use sandbar_observe::{
    Actor, AuditConfig, AuditLog, AuditMode, Event, Outcome, Phase, Role, TraceContext, current_actor,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::config::BACKEND;
use crate::home::StoredRecord;

/// Where to tell; in the orders to a shim, and in the record, so that whoever takes over goes on with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AuditOrders {
    config: AuditConfig,
    /// Who made the sandbox.
    actor: Option<String>,
    /// What made it, as a `traceparent`.
    trace: Option<String>,
}

impl AuditOrders {
    /// As the present task is to be told of.
    pub(crate) fn of_task(config: AuditConfig) -> Self {
        let trace = TraceContext::current().and_then(|context| context.traceparent());
        Self { config, actor: current_actor(), trace }
    }

    /// The record, opened so that what can't be written keeps no sandbox from its end.
    fn open(&self) -> Option<AuditLog> {
        AuditLog::open(self.config.clone().with_mode(AuditMode::BestEffort)).ok()
    }
}

/// The end of a sandbox, told at its beginning and, by [`AuditedEnd::over`], when it came about.
#[derive(Debug)]
pub(crate) struct AuditedEnd(Option<(AuditLog, Event)>);

impl AuditedEnd {
    /// Tells that the sandbox of `record` is about to end, as far as its maker wanted that told.
    pub(crate) fn begin(record: Option<&StoredRecord>, role: Role, cause: Option<EndCause>) -> Self {
        let told = record.and_then(|record| {
            let (log, event) = event(record, role, "ended")?;
            let mut event = event.with_detail("reason", json!(cause.unwrap_or(EndCause::Unknown)));
            event.phase = Phase::Begin;
            // A loss is counted, and told with the next event that is not.
            let _ = log.append(&event);
            Some((log, event))
        });
        Self(told)
    }

    /// Tells what came of it: `left`, what is there now.
    pub(crate) fn over(self, result: &Result<()>, left: Left, detail: Option<&str>) {
        let Some((log, event)) = self.0 else { return };
        let left = match left {
            Left::Nothing => "nothing",
            Left::Files => "files",
        };
        let mut event = event.with_result(result).with_detail("left", left);
        if let Some(detail) = detail {
            event = event.with_detail("detail", detail);
        }
        event.phase = Phase::End;
        event.at = crate::home::now();
        let _ = log.append(&event);
    }
}

/// What is there of a sandbox after its end, if that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// It is stopped.
    Files,
}

/// Tells that a limit ended something, or refused it.
pub(crate) fn killed(record: &StoredRecord, cause: KillCause, detail: &str) {
    let Some((log, event)) = event(record, Role::Guard, "limit") else { return };
    let event = event.with_detail("cause", json!(cause)).with_detail("detail", detail);
    let _ = log.append(&event);
}

/// Tells that another shim took over.
pub(crate) fn adopted(record: &StoredRecord) {
    let Some((log, mut event)) = event(record, Role::Guard, "adopt") else { return };
    event.outcome = Some(Outcome::Ok);
    let _ = log.append(&event);
}

fn event(record: &StoredRecord, role: Role, op: &'static str) -> Option<(AuditLog, Event)> {
    let orders = record.private.audit.as_ref()?;
    let log = orders.open()?;
    let actor = Actor::this_process(role, orders.actor.as_deref());
    let mut event = Event::note(op, BACKEND, actor).with_sandbox(&record.id, record.project.as_ref());
    if let Some(trace) = orders.trace.as_deref().and_then(|text| TraceContext::parse(text, None)) {
        event = event.with_span(&trace.span());
    }
    Some((log, event))
}
