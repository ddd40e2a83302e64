use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use sandbar_core::{Deadline, DeadlineMode, ForkOptions, SandboxExt as _, State as Core};
use sandbar_wire::e2b::{ErrorBody, ForkSandbox, Sandbox, SandboxFork};

use super::admission::Admission;
use super::seconds::{self, OLD_DEFAULT_TIMEOUT};
use crate::app::App;
use crate::control::extract::{OptionalJson, PathId};
use crate::error::{ApiError, ApiResult};
use crate::known::Known;
use crate::store::Event;
use crate::tenant::Tenant;

/// Most copies of one call: E2B's limit.
const MAX_COPIES: usize = 100;

/// `POST /sandboxes/{id}/fork`
pub(super) async fn fork(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    OptionalJson(asked): OptionalJson<ForkSandbox>,
) -> ApiResult<Response> {
    let longest = app.config.limits.longest_timeout;
    let seconds = seconds::positive(asked.timeout, OLD_DEFAULT_TIMEOUT, longest)?;
    let count = count(asked.count, app.config.limits.sandboxes)?;
    let known = app.sandbox(&tenant, &id).await?;
    let _turn = app.turns.take(known.record.id.as_str()).await;
    let known = app.sandbox(&tenant, &id).await?;
    match known.record.state {
        Core::Running => {}
        Core::Destroying => return Err(ApiError::no_sandbox(&id)),
        Core::Sleeping | Core::Stopped => {
            return Err(ApiError::conflict(format!("Sandbox \"{id}\" is paused: connect to it first")));
        }
        state => return Err(ApiError::conflict(format!("Sandbox \"{id}\" can't be forked: it is {state}"))),
    }
    known.sandbox.require_forking()?;
    let places = app.admit(&tenant, count, None).await?;
    let mut forks = Vec::with_capacity(count);
    for number in 0..count {
        match app.fork_one(&known, seconds, &places).await {
            Ok(sandbox) => forks.push(SandboxFork { sandbox: Some(sandbox), error: None }),
            // What the first one can't do for a reason of the parent's, none can.
            Err(error) if number == 0 && error.status.is_client_error() => {
                return Err(app.unless_gone(&tenant, &id, error).await);
            }
            Err(error) => forks.push(SandboxFork { sandbox: None, error: Some(body(error)) }),
        }
    }
    Ok((StatusCode::CREATED, axum::Json(forks)).into_response())
}

impl App {
    /// One copy with an end of its own, or none.
    async fn fork_one(&self, parent: &Known, seconds: u64, places: &Admission) -> ApiResult<Sandbox> {
        let network = self.store.network(&parent.record.id).await?;
        let (copy, _) = parent.sandbox.require_forking()?.fork(ForkOptions::default()).await?;
        places.runs(copy.id());
        self.owners.add(&parent.marks.tenant, copy.id());
        let set = async {
            copy.set_deadline(Deadline::In(Duration::from_secs(seconds)), DeadlineMode::Set).await?;
            self.store.note_made(copy.id(), Event::Forked, network).await?;
            copy.record().await
        };
        match set.await {
            Ok(record) => Ok(self.sandbox_answer(&record, &parent.marks)),
            Err(error) => {
                let mut error = ApiError::from(error);
                match copy.destroy().await {
                    Ok(_) => self.admissions.ended(&parent.marks.tenant, copy.id()),
                    Err(left) => {
                        tracing::error!(sandbox = %copy.id(), error = %left, "a copy that was not set up is left");
                        error.message =
                            format!("{}; sandbox \"{}\" is left behind", error.message, copy.id());
                    }
                }
                Err(error)
            }
        }
    }
}

fn count(asked: Option<i64>, sandboxes: u32) -> ApiResult<usize> {
    let asked = asked.unwrap_or(1);
    let count = usize::try_from(asked).ok().filter(|count| (1..=MAX_COPIES).contains(count));
    let count = count.ok_or_else(|| {
        ApiError::bad_request(format!("count {asked} is not valid: expected a number from 1 to {MAX_COPIES}"))
    })?;
    // The parent has a place, too.
    if count >= usize::try_from(sandboxes).unwrap_or(usize::MAX) {
        return Err(ApiError::bad_request(format!(
            "count {count} is more than fits: the key's limit is {sandboxes} concurrent sandboxes, the parent among them"
        )));
    }
    Ok(count)
}

fn body(error: ApiError) -> ErrorBody {
    ErrorBody {
        code: i32::from(error.status.as_u16()),
        message: error.message,
        error_code: error.error_code.map(str::to_owned),
    }
}
