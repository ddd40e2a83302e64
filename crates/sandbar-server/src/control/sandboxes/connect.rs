use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use sandbar_core::{Deadline, DeadlineAction, DeadlineMode, ErrorKind, SandboxExt as _, State as Core};
use sandbar_wire::e2b::{ConnectSandbox, ResumeSandbox, Sandbox};

use super::seconds::{self, DEFAULT_TIMEOUT, OLD_DEFAULT_TIMEOUT};
use crate::app::App;
use crate::control::extract::{Json, OptionalJson, PathId};
use crate::error::{ApiError, ApiResult};
use crate::known::Known;
use crate::store::Event;
use crate::tenant::Tenant;

/// How often a sandbox is looked at that is on its way from one state to another.
const TRIES: u32 = 3;

/// Between two such looks.
const TRY_PAUSE: Duration = Duration::from_millis(200);

/// Why a resume from files alone is refused.
const NO_REBOOT: &str =
    "a sandbox can't be started from its files alone here: leave memory out, or set it to true";

/// What a connect found.
enum Found {
    Running,
    Resumed,
}

/// `POST /v2/sandboxes/{id}/connect`
pub(super) async fn v2(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    OptionalJson(asked): OptionalJson<ConnectSandbox>,
) -> ApiResult<Response> {
    connect(&app, &tenant, &id, asked).await
}

/// `POST /sandboxes/{id}/connect`, which demands a timeout.
pub(super) async fn v1(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    Json(asked): Json<ConnectSandbox>,
) -> ApiResult<Response> {
    if asked.timeout.is_none() {
        return Err(ApiError::bad_request("invalid body: timeout is missing: expected seconds"));
    }
    connect(&app, &tenant, &id, asked).await
}

async fn connect(app: &Arc<App>, tenant: &Tenant, id: &str, asked: ConnectSandbox) -> ApiResult<Response> {
    let seconds = seconds::positive(asked.timeout, DEFAULT_TIMEOUT, app.config.limits.longest_timeout)?;
    let mut tries = 1;
    loop {
        let known = app.sandbox(tenant, id).await?;
        match app.try_connect(tenant, &known, seconds, asked.memory).await {
            Ok((found, answer)) => {
                let status = match found {
                    Found::Running => StatusCode::OK,
                    Found::Resumed => StatusCode::CREATED,
                };
                return Ok((status, axum::Json(answer)).into_response());
            }
            Err(error) if error.status == StatusCode::CONFLICT && tries < TRIES => {
                tries += 1;
                tokio::time::sleep(TRY_PAUSE).await;
            }
            Err(error) => return Err(app.unless_gone(tenant, id, error).await),
        }
    }
}

/// `POST /sandboxes/{id}/resume`, of before `connect`.
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    OptionalJson(asked): OptionalJson<ResumeSandbox>,
) -> ApiResult<Response> {
    let seconds = seconds::positive(asked.timeout, OLD_DEFAULT_TIMEOUT, app.config.limits.longest_timeout)?;
    let known = app.sandbox(&tenant, &id).await?;
    let _turn = app.turns.take(known.record.id.as_str()).await;
    let known = app.sandbox(&tenant, &id).await?;
    if known.record.state == Core::Running {
        return Err(ApiError::conflict(format!("Sandbox \"{id}\" is already running")));
    }
    if let Some(pauses) = asked.auto_pause {
        let action = if pauses { DeadlineAction::Pause } else { DeadlineAction::Destroy };
        known.sandbox.require_pausing()?.set_deadline_action(action).await?;
    }
    if let Err(error) = app.resume_at_turn(&tenant, &known, seconds).await {
        return Err(app.unless_gone(&tenant, &id, error).await);
    }
    let answer = app.sandbox_answer(&known.record, &known.marks);
    Ok((StatusCode::CREATED, axum::Json(answer)).into_response())
}

impl App {
    async fn try_connect(
        &self,
        tenant: &Tenant,
        known: &Known,
        seconds: u64,
        memory: Option<bool>,
    ) -> ApiResult<(Found, Sandbox)> {
        let id = known.record.id.as_str();
        let _turn = self.turns.take(id).await;
        // It may have changed while others had their turn.
        let known = self.sandbox(tenant, id).await?;
        let answer = self.sandbox_answer(&known.record, &known.marks);
        match known.record.state {
            Core::Running => {
                self.set_end(&known, seconds, DeadlineMode::ExtendOnly).await?;
                Ok((Found::Running, answer))
            }
            Core::Sleeping if memory == Some(false) => Err(ApiError::bad_request(NO_REBOOT)),
            Core::Sleeping => {
                self.resume_at_turn(tenant, &known, seconds).await?;
                Ok((Found::Resumed, answer))
            }
            state => Err(not_resumable(&known, state)),
        }
    }

    /// Resumes a sandbox because of a request to it, with the time that it was given at first and not less than E2B's five minutes. Does nothing if it runs.
    pub(crate) async fn resume_for_request(&self, known: &Known) -> ApiResult<()> {
        let tenant = Tenant { id: known.marks.tenant.clone(), key: String::new() };
        let longest = self.config.limits.longest_timeout.as_secs();
        let seconds = known.marks.timeout.max(DEFAULT_TIMEOUT).min(longest);
        let id = known.record.id.as_str();
        let _turn = self.turns.take(id).await;
        let known = self.sandbox(&tenant, id).await?;
        match known.record.state {
            Core::Running => Ok(()),
            Core::Sleeping => self.resume_at_turn(&tenant, &known, seconds).await,
            state => Err(not_resumable(&known, state)),
        }
    }

    /// Resumes a sandbox that sleeps, for so many seconds. Its turn has been taken.
    async fn resume_at_turn(&self, tenant: &Tenant, known: &Known, seconds: u64) -> ApiResult<()> {
        let (sandbox, id) = (&known.sandbox, &known.record.id);
        if known.record.state != Core::Sleeping {
            return Err(not_resumable(known, known.record.state));
        }
        let place = self.admit(tenant, 1, Some(id)).await?;
        // Before it runs: if this ends half-way it must not run for ever.
        sandbox.set_deadline(Deadline::In(Duration::from_secs(seconds)), DeadlineMode::Set).await?;
        if let Err(error) = sandbox.wake().await {
            // Asleep still, and what sleeps has no end.
            if let Err(left) = sandbox.set_deadline(Deadline::Never, DeadlineMode::Set).await
                && left.kind() != ErrorKind::NotFound
            {
                tracing::error!(sandbox = %id, error = %left, "a paused sandbox keeps an end that it should not have");
            }
            return Err(error.into());
        }
        place.runs(id);
        // A backend may give it as much time as it had before.
        sandbox.set_deadline(Deadline::In(Duration::from_secs(seconds)), DeadlineMode::Set).await?;
        self.store.note(id, Event::Resumed).await?;
        Ok(())
    }
}

fn not_resumable(known: &Known, state: Core) -> ApiError {
    let why = match state {
        Core::Stopped => "its processes are gone, so it can't be resumed; kill it",
        Core::Destroying => "it is being killed",
        _ => "it is on its way to another state; try again in a moment",
    };
    ApiError::conflict(format!("Sandbox \"{}\" can't be connected to: {why}", known.record.id))
}
