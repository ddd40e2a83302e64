use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use sandbar_wire::e2b::SandboxDetail;

use crate::app::App;
use crate::control::extract::PathId;
use crate::error::{ApiError, ApiResult};
use crate::tenant::Tenant;

/// `GET /sandboxes/{id}`
pub(super) async fn detail(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
) -> ApiResult<axum::Json<SandboxDetail>> {
    let known = app.sandbox(&tenant, &id).await?;
    let detail = app.detail(&known.record, &known.marks, None);
    detail.map(axum::Json).ok_or_else(|| ApiError::no_sandbox(&id))
}

/// `DELETE /sandboxes/{id}`, whether it runs or is paused.
pub(super) async fn kill(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
) -> ApiResult<StatusCode> {
    let known = app.sandbox(&tenant, &id).await?;
    if known.sandbox.destroy().await? { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::no_sandbox(&id)) }
}
