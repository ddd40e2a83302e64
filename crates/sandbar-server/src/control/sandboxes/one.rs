use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use sandbar_wire::e2b::SandboxDetail;

use super::network;
use crate::app::App;
use crate::control::extract::PathId;
use crate::error::{ApiError, ApiResult};
use crate::known::Known;
use crate::tenant::Tenant;

/// `GET /sandboxes/{id}`
pub(super) async fn detail(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
) -> ApiResult<axum::Json<SandboxDetail>> {
    let known = app.sandbox(&tenant, &id).await?;
    let paused = app.paused_at(std::slice::from_ref(&known.record)).await?;
    let paused_at = paused.get(&known.record.id).copied();
    let Some(mut detail) = app.detail(&known.record, &known.marks, paused_at) else {
        return Err(ApiError::no_sandbox(&id));
    };
    network::show(&mut detail, app.store.network(&known.record.id).await?, &known.marks);
    Ok(axum::Json(detail))
}

/// `DELETE /sandboxes/{id}`, whether it runs or is paused.
pub(super) async fn kill(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
) -> ApiResult<StatusCode> {
    let known = app.sandbox(&tenant, &id).await?;
    if app.end(&known).await? { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::no_sandbox(&id)) }
}

impl App {
    /// Ends a sandbox and what is under way in it; `false` if it was gone already.
    pub(super) async fn end(&self, known: &Known) -> ApiResult<bool> {
        let is_ended = known.sandbox.destroy().await?;
        self.admissions.ended(&known.marks.tenant, &known.record.id);
        if !is_ended {
            return Ok(false);
        }
        self.guests.ended(&known.record.id);
        // It is gone: what is still remembered of it is swept later.
        if let Err(error) = self.store.forget(&known.record.id).await {
            tracing::warn!(sandbox = %known.record.id, error = %error, "a killed sandbox is still remembered");
        }
        Ok(true)
    }
}
