use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use sandbar_core::{ProviderExt as _, Query, SandboxRecord, State as SandboxState};
use sandbar_wire::e2b::{Team, TeamMetric};

use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::marks::Marks;
use crate::tenant::Tenant;

/// Over how long the rate of starts is taken: of those that still run.
const RATE_OVER: Duration = Duration::from_secs(60);

/// Teams are tenants here, and a key knows its own only.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new().route("/teams", get(list)).route("/teams/{id}/metrics", get(metrics))
}

async fn list(tenant: Tenant) -> Json<Vec<Team>> {
    // E2B's answer has a key in it; who asks has one, and nobody can tell it again.
    Json(vec![Team { team_id: tenant.id.clone(), name: tenant.id, api_key: String::new(), is_default: true }])
}

/// What runs now: one sample, since no history is kept of a tenant. Of the times asked for the answer knows now only.
async fn metrics(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    tenant: Tenant,
) -> ApiResult<Json<Vec<TeamMetric>>> {
    let now = jiff::Timestamp::now();
    let records = running(&app, &id, &tenant).await?;
    let since = now - RATE_OVER;
    let made = records.iter().filter(|record| record.created_at.is_some_and(|at| at >= since)).count();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(Json(vec![TeamMetric {
        timestamp: now.to_string(),
        timestamp_unix: now.as_second(),
        concurrent_sandboxes: count(records.len()),
        sandbox_start_rate: f64::from(count(made)) / RATE_OVER.as_secs_f64(),
    }]))
}

/// The tenant's running sandboxes.
async fn running(app: &App, id: &str, tenant: &Tenant) -> ApiResult<Vec<SandboxRecord>> {
    if id != tenant.id {
        return Err(ApiError::not_found(format!(
            "Team \"{id}\" doesn't exist or you don't have access to it"
        )));
    }
    let query =
        Query::new().with_labels(Marks::tenant_query(&tenant.id)?).with_states([SandboxState::Running]);
    let mut records = app.provider.list_all(query).await?;
    records.retain(|record| Marks::of(record).is_some_and(|marks| !marks.is_internal));
    Ok(records)
}
