//! When a sandbox ends: no later than the longest time after it was last started.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use sandbar_core::{Deadline, DeadlineAction, DeadlineMode, State as Core};
use sandbar_wire::e2b::{RefreshSandbox, SetTimeout};

use super::answer::started_at;
use super::seconds::{self, MIN_REFRESH};
use crate::app::App;
use crate::control::extract::{Json, OptionalJson, PathId};
use crate::error::{ApiError, ApiResult};
use crate::known::Known;
use crate::store::Event;
use crate::tenant::Tenant;

/// `POST /sandboxes/{id}/timeout`: from now on, earlier or later than before.
pub(super) async fn timeout(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    Json(SetTimeout { timeout }): Json<SetTimeout>,
) -> ApiResult<StatusCode> {
    let asked = u64::try_from(timeout).unwrap_or(0);
    let seconds = seconds::bounded(asked, app.config.limits.longest_timeout)?;
    let known = app.sandbox(&tenant, &id).await?;
    let _turn = app.turns.take(known.record.id.as_str()).await;
    let known = app.sandbox(&tenant, &id).await?;
    if known.record.state != Core::Running {
        return Err(ApiError::conflict(format!(
            "Sandbox \"{id}\" is {}: connect to it first",
            known.record.state
        )));
    }
    if seconds == 0 {
        // An end that has passed is no deadline: what happens at one happens now.
        match known.record.on_deadline {
            DeadlineAction::Destroy => {
                app.end(&known).await?;
            }
            DeadlineAction::Pause => app.put_to_sleep(&known).await?,
        }
        return Ok(StatusCode::NO_CONTENT);
    }
    if let Err(error) = app.set_end(&known, seconds, DeadlineMode::Set).await {
        return Err(app.unless_gone(&tenant, &id, error).await);
    }
    app.store.note(&known.record.id, Event::TimeoutSet).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /sandboxes/{id}/refreshes`: never earlier than before.
pub(super) async fn refresh(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    OptionalJson(RefreshSandbox { duration }): OptionalJson<RefreshSandbox>,
) -> ApiResult<StatusCode> {
    let longest = app.config.limits.longest_timeout;
    let asked = duration.map_or(MIN_REFRESH, |asked| u64::try_from(asked).unwrap_or(0).max(MIN_REFRESH));
    let seconds = seconds::bounded(asked, longest.max(Duration::from_secs(MIN_REFRESH)))?;
    let known = app.sandbox(&tenant, &id).await?;
    if known.record.state != Core::Running {
        return Err(ApiError::no_sandbox(&id));
    }
    if let Err(error) = app.set_end(&known, seconds, DeadlineMode::ExtendOnly).await {
        return Err(app.unless_gone(&tenant, &id, error).await);
    }
    Ok(StatusCode::NO_CONTENT)
}

impl App {
    /// Sets when a sandbox that runs ends, no later than it may.
    pub(super) async fn set_end(&self, known: &Known, seconds: u64, mode: DeadlineMode) -> ApiResult<()> {
        let now = Timestamp::now();
        let asked = after(now, Duration::from_secs(seconds));
        let latest = after(self.running_since(known).await?, self.config.limits.longest_timeout);
        if latest <= now {
            return Err(ApiError::bad_request("Max instance length exceeded"));
        }
        known.sandbox.set_deadline(Deadline::At(asked.min(latest)), mode).await?;
        Ok(())
    }

    /// When a sandbox that runs was last started or resumed.
    async fn running_since(&self, known: &Known) -> ApiResult<Timestamp> {
        let id = known.record.id.to_string();
        let turns = self.store.turns(vec![id.clone()]).await?;
        let noted = turns.get(&id).filter(|(is_asleep, _)| !is_asleep);
        let noted = noted.and_then(|(_, at)| Timestamp::from_millisecond(*at).ok());
        Ok(noted.unwrap_or_else(|| started_at(&known.record)))
    }
}

fn after(start: Timestamp, duration: Duration) -> Timestamp {
    start.checked_add(duration).unwrap_or(Timestamp::MAX)
}
