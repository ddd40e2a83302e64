use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use sandbar_core::{
    Command, Deadline, DeadlineMode, Error, ErrorKind, RunOptions, Sandbox, SandboxExt as _, State as Core,
};
use sandbar_wire::e2b::PauseSandbox;

use super::plan::NO_FILES_ONLY_PAUSE;
use crate::app::App;
use crate::control::extract::{OptionalJson, PathId};
use crate::error::{ApiError, ApiResult};
use crate::known::Known;
use crate::store::Event;
use crate::tenant::Tenant;

/// How long a guest may take to answer where that is demanded before a pause: what SDKs give a look at its health.
const HEALTHY: Duration = Duration::from_secs(5);

/// E2B's word for a guest that does not answer.
const UNRESPONSIVE: &str = "sandbox_snapshot_guest_agent_unresponsive";

/// `POST /sandboxes/{id}/pause`
pub(super) async fn pause(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    OptionalJson(asked): OptionalJson<PauseSandbox>,
) -> ApiResult<StatusCode> {
    if asked.memory == Some(false) {
        return Err(ApiError::bad_request(NO_FILES_ONLY_PAUSE));
    }
    let known = app.sandbox(&tenant, &id).await?;
    let _turn = app.turns.take(known.record.id.as_str()).await;
    let known = app.sandbox(&tenant, &id).await?;
    match known.record.state {
        Core::Running => {}
        Core::Sleeping | Core::Stopped => {
            return Err(ApiError::conflict(format!("Sandbox \"{id}\" is already paused")));
        }
        Core::Destroying => return Err(ApiError::no_sandbox(&id)),
        state => return Err(ApiError::conflict(format!("Sandbox \"{id}\" can't be paused: it is {state}"))),
    }
    if asked.require_healthy_guest == Some(true) {
        demand_healthy(&*known.sandbox).await?;
    }
    if let Err(error) = app.put_to_sleep(&known).await {
        return Err(app.unless_gone(&tenant, &id, error).await);
    }
    Ok(StatusCode::NO_CONTENT)
}

impl App {
    /// Pauses a sandbox that runs, and ends what is under way in it. Its turn has been taken.
    pub(super) async fn put_to_sleep(&self, known: &Known) -> ApiResult<()> {
        known.sandbox.require_pausing()?.hibernate().await.map_err(busy)?;
        self.guests.ended(&known.record.id);
        self.admissions.sleeps(&known.marks.tenant, &known.record.id);
        // What is paused stays until somebody wants it again. Not before the pause: if that fails, the end is as it was.
        known.sandbox.set_deadline(Deadline::Never, DeadlineMode::Set).await?;
        self.store.note(&known.record.id, Event::Paused).await?;
        Ok(())
    }
}

/// One that runs and can't be paused now is not paused already, which is what SDKs take a conflict for.
fn busy(error: Error) -> ApiError {
    let is_busy = error.kind() == ErrorKind::Conflict && error.state() == Some(Core::Running);
    let mut answer = ApiError::from(error);
    if is_busy {
        answer.status = StatusCode::SERVICE_UNAVAILABLE;
    }
    answer
}

/// The smallest thing that only a guest that answers can do.
async fn demand_healthy(sandbox: &dyn Sandbox) -> ApiResult<()> {
    let options = RunOptions::default().with_timeout(HEALTHY);
    let command = Command::new("true");
    let ran = tokio::time::timeout(HEALTHY, sandbox.commands().run_opts(&command, options)).await;
    match ran {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(ApiError::conflict(format!(
            "Sandbox \"{}\" was not paused: its guest does not answer",
            sandbox.id()
        ))
        .with_error_code(UNRESPONSIVE)),
    }
}
