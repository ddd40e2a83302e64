use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use sandbar_core::{RunOptions, SandboxId};
use sandbar_wire::e2b::{NewSandbox, Sandbox};
use tokio::time::Instant;

use super::idempotency::Attempt;
use super::network;
use super::plan::{Generation, Plan, shell};
use crate::app::App;
use crate::control::extract::Json;
use crate::error::{ApiError, ApiResult};
use crate::marks::Marks;
use crate::store::{Event, StoredNetwork};
use crate::tenant::Tenant;

/// How long what a template waits for may take until its sandbox is given up: some services take half a minute to start.
const READY: Duration = Duration::from_secs(60);

/// Between two looks whether it is there.
const READY_PAUSE: Duration = Duration::from_millis(100);

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
    let attempt = Attempt::of(&headers, &asked, generation)?;
    let work = Arc::clone(&app);
    // By itself: one whose client leaves is made all the same or leaves nothing, and one that comes again finds it.
    let made = app.work.spawn(async move {
        match attempt {
            Some(attempt) => make_once(&work, &tenant, &asked, generation, attempt).await,
            None => make(&work, &tenant, &asked, generation).await.map(|(answer, _)| answer),
        }
    });
    let made = made.await.map_err(|_| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the creation ended before it was done")
            .with_error_code("internal_server_error")
    })?;
    Ok((StatusCode::CREATED, axum::Json(made?)).into_response())
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

/// Makes a sandbox, or leaves nothing.
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
    let sandbox = app.provider.create(options.with_labels(labels)).await?;
    let said = network::stored(asked.network.clone(), asked.allow_internet_access);
    match finish(app, &*sandbox, &marks, template.ready.as_deref(), said).await {
        Ok(answer) => {
            // A number that people look at: no reason to take a sandbox away that is ready.
            if let Err(error) = app.store.note_spawn(&template.id).await {
                tracing::warn!(template = template.id, error = %error, "a sandbox of a template was not counted");
            }
            Ok((answer, sandbox.id().clone()))
        }
        Err(mut error) => {
            if let Err(left) = sandbox.destroy().await {
                tracing::error!(sandbox = %sandbox.id(), error = %left, "a sandbox that did not get ready is left");
                error.message = format!("{}; sandbox \"{}\" is left behind", error.message, sandbox.id());
            }
            Err(error)
        }
    }
}

async fn finish(
    app: &App,
    sandbox: &dyn sandbar_core::Sandbox,
    marks: &Marks,
    ready: Option<&str>,
    said: StoredNetwork,
) -> ApiResult<Sandbox> {
    app.store.note_made(sandbox.id(), Event::Created, said).await?;
    if let Some(ready) = ready {
        wait_until_ready(sandbox, ready).await?;
    }
    Ok(app.sandbox_answer(&sandbox.record().await?, marks))
}

/// Runs what a template waits for until it succeeds.
async fn wait_until_ready(sandbox: &dyn sandbar_core::Sandbox, ready: &str) -> ApiResult<()> {
    let end = Instant::now() + READY;
    let command = shell(ready);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let options = RunOptions::default().with_timeout(left.max(READY_PAUSE));
        let is_ready = match sandbox.commands().run_opts(&command, options).await {
            Ok(output) => output.status.is_success(),
            Err(error) if error.kind() == sandbar_core::ErrorKind::Timeout => false,
            Err(error) => return Err(error.into()),
        };
        if is_ready {
            return Ok(());
        }
        if Instant::now() >= end {
            let message = format!(
                "the template's ready command did not succeed within {} s: look whether its start command runs",
                READY.as_secs()
            );
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
                .with_error_code("sandbox_create_failed"));
        }
        tokio::time::sleep(READY_PAUSE).await;
    }
}
