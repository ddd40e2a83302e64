use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use sandbar_core::{Deadline, DeadlineMode, SandboxId};
use sandbar_wire::e2b::{NewSandbox, Sandbox};

use super::idempotency::Attempt;
use super::network;
use super::plan::{Generation, Plan};
use crate::app::App;
use crate::control::READY_ROOM;
use crate::control::extract::Json;
use crate::error::{ApiError, ApiResult};
use crate::marks::Marks;
use crate::store::{Event, StoredNetwork};
use crate::tenant::Tenant;

/// `POST /v2/sandboxes`
pub(super) async fn v2(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    headers: HeaderMap,
    Json(asked): Json<NewSandbox>,
) -> ApiResult<Response> {
    create(app, tenant, headers, asked, Generation::Second).await
}

/// `POST /sandboxes`
pub(super) async fn v1(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    headers: HeaderMap,
    Json(asked): Json<NewSandbox>,
) -> ApiResult<Response> {
    create(app, tenant, headers, asked, Generation::First).await
}

async fn create(
    app: Arc<App>,
    tenant: Tenant,
    headers: HeaderMap,
    asked: NewSandbox,
    generation: Generation,
) -> ApiResult<Response> {
    // One that comes again, because its client left, finds what the first has made.
    let made = match Attempt::of(&headers, &asked, generation)? {
        Some(attempt) => make_once(&app, &tenant, &asked, generation, attempt).await?,
        None => make(&app, &tenant, &asked, generation).await?.0,
    };
    Ok((StatusCode::CREATED, axum::Json(made)).into_response())
}

/// Makes a sandbox, or answers the one that was made with this key.
async fn make_once(
    app: &App,
    tenant: &Tenant,
    asked: &NewSandbox,
    generation: Generation,
    attempt: Attempt,
) -> ApiResult<Sandbox> {
    let _turn = app.turns.take(&format!("{}/{}", tenant.id, attempt.key)).await;
    if let Some(made) = app.store.made_with(&tenant.id, &attempt.key).await? {
        if made.asked != attempt.asked {
            return Err(Attempt::other_body());
        }
        return match app.sandbox(tenant, &made.sandbox).await {
            Ok(known) => Ok(app.sandbox_answer(&known.record, &known.marks)),
            Err(error) if error.status == StatusCode::NOT_FOUND => Err(Attempt::ended()),
            Err(error) => Err(error),
        };
    }
    let (answer, id) = make(app, tenant, asked, generation).await?;
    app.store.remember_made(&tenant.id, &attempt.key, attempt.asked, &id).await?;
    Ok(answer)
}

/// Makes a sandbox, or leaves nothing. The backend answers once its template's ready command has succeeded, and bounds how long that takes: there is no
/// second bound here, which could only be too short.
async fn make(
    app: &App,
    tenant: &Tenant,
    asked: &NewSandbox,
    generation: Generation,
) -> ApiResult<(Sandbox, SandboxId)> {
    let plan = Plan::of(app, tenant, asked, generation).await?;
    let template = app.resolve_template(tenant, asked.template_id.trim()).await?;
    let Plan { options, mut marks, .. } = plan.with_template(&template, asked)?;
    let admission = app.admit(tenant, 1, None).await?;
    marks.creation = Some(admission.mark.clone());
    let labels = marks.to_labels(&asked.metadata.clone().unwrap_or_default())?;
    let mut options = options.with_labels(labels);
    // Those of the server's own are ready as soon as they are there.
    let own_time = Duration::from_secs(marks.timeout);
    let may_wait = template.provider.is_some();
    if may_wait {
        options = options.with_deadline(own_time + READY_ROOM);
    }
    let sandbox = app.provider.create(options).await.map_err(not_made)?;
    admission.runs(sandbox.id());
    app.owners.add(&tenant.id, sandbox.id());
    let said = network::stored(asked.network.clone(), asked.allow_internet_access);
    let own_time = may_wait.then_some(own_time);
    match finish(app, &*sandbox, &marks, own_time, said).await {
        Ok(answer) => {
            // A number that people look at: no reason to take a sandbox away that is ready.
            if let Err(error) = app.store.note_spawn(&template.id).await {
                tracing::warn!(template = template.id, error = %error, "a sandbox of a template was not counted");
            }
            Ok((answer, sandbox.id().clone()))
        }
        Err(mut error) => {
            match sandbox.destroy().await {
                Ok(_) => app.admissions.ended(&tenant.id, sandbox.id()),
                Err(left) => {
                    tracing::error!(sandbox = %sandbox.id(), error = %left, "a sandbox that did not get ready is left");
                    error.message = format!("{}; sandbox \"{}\" is left behind", error.message, sandbox.id());
                }
            }
            Err(error)
        }
    }
}

/// E2B has a word for what the backend could not do.
fn not_made(error: sandbar_core::Error) -> ApiError {
    let error = ApiError::from(error);
    if error.status.is_server_error() { error.with_error_code("sandbox_create_failed") } else { error }
}

async fn finish(
    app: &App,
    sandbox: &dyn sandbar_core::Sandbox,
    marks: &Marks,
    own_time: Option<Duration>,
    said: StoredNetwork,
) -> ApiResult<Sandbox> {
    if let Some(own_time) = own_time {
        sandbox.set_deadline(Deadline::In(own_time), DeadlineMode::Set).await?;
    }
    app.store.note_made(sandbox.id(), Event::Created, said).await?;
    Ok(app.sandbox_answer(&sandbox.record().await?, marks))
}
