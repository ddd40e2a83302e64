use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use sandbar_core::{CommitOptions, SandboxId, State as SandboxState, TemplateId};
use sandbar_wire::e2b::{NewSnapshot, SnapshotInfo};
use serde::Deserialize;

use super::name::{DEFAULT_TAG, Reference};
use super::register::{fresh, own_reference, tags_of, too_many};
use crate::app::App;
use crate::control::extract::{OptionalJson, PathId, Query};
use crate::error::{ApiError, ApiResult};
use crate::store::{BuildStatus, Finished, Kind, Registration, SnapshotQuery, SnapshotRow, TemplateRow};
use crate::tenant::Tenant;

/// How long a snapshot may take: until a sandbox' files are copied.
const TIME: Duration = Duration::from_secs(1800);

/// Most entries of a page, and how many there are where nothing is said: E2B's own.
const MAX_PAGE: i64 = 100;

/// Longest token of a page, in bytes: a time and an id take far less.
const MAX_TOKEN: usize = 512;

#[derive(Debug, Deserialize)]
pub(super) struct ListQuery {
    #[serde(rename = "sandboxID")]
    sandbox: Option<String>,
    name: Option<String>,
    limit: Option<i64>,
    #[serde(rename = "nextToken")]
    next_token: Option<String>,
}

/// `POST /sandboxes/{id}/snapshots`
pub(super) async fn create(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    OptionalJson(asked): OptionalJson<NewSnapshot>,
) -> ApiResult<(StatusCode, axum::Json<SnapshotInfo>)> {
    let known = app.sandbox(&tenant, &id).await?;
    if app.provider.templates().is_none() {
        let why =
            app.provider.missing_reason("templates").unwrap_or_else(|| "it has no templates".to_owned());
        return Err(ApiError::bad_request(format!("no snapshots on this backend: {why}")));
    }
    if asked.memory == Some(true) {
        return Err(ApiError::bad_request(
            "a snapshot with what runs is not available here: leave memory out for one of the files",
        ));
    }
    if known.record.state != SandboxState::Running {
        return Err(ApiError::not_found(format!("Sandbox \"{id}\" is not running: resume it first")));
    }
    let reference = asked.name.as_deref().map(|name| own_reference(&tenant, name)).transpose()?;
    let tags = tags_of(reference.as_ref().and_then(|reference| reference.tag.as_deref()), &[])?;
    let limit = |name: &str| known.record.limits.get(name).and_then(|limit| limit.value);
    let build = uuid::Uuid::new_v4().to_string();
    let registration = Registration {
        status: BuildStatus::Building,
        sandbox: Some(known.record.id.as_str().to_owned()),
        cpu_count: limit("cpu").filter(|cpu| *cpu >= 1000).and_then(|cpu| u32::try_from(cpu / 1000).ok()),
        memory_mb: limit("memory").map(|bytes| bytes >> 20).filter(|mb| *mb > 0),
        tags: tags.clone(),
        ..fresh(&tenant, reference, Kind::Snapshot, build.clone())?
    };
    let provider = registration.provider.clone();
    let Some(template) = app.store.register_build(registration).await? else { return Err(too_many()) };
    // It goes on when the client leaves: then it is there, or it is not.
    let work = commit(Arc::clone(&app), known.record.id, build, provider, template.clone());
    let done = app.builds.tasks.spawn(work).await;
    done.map_err(|error| {
        tracing::error!(%error, "a snapshot was broken off");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the snapshot was broken off")
    })??;
    let tag = tags.into_iter().next().unwrap_or_else(|| DEFAULT_TAG.to_owned());
    Ok((StatusCode::CREATED, axum::Json(info(&tenant, &template.id, template.name.as_deref(), &tag))))
}

async fn commit(
    app: Arc<App>,
    sandbox: SandboxId,
    build: String,
    provider: String,
    template: TemplateRow,
) -> ApiResult<()> {
    let committed = committed(&app, sandbox, &provider).await;
    match committed {
        Ok(finished) => {
            if app.store.finish_build(&build, &provider, finished).await? {
                return Ok(());
            }
            app.builds.kick();
            Err(ApiError::conflict("the snapshot was deleted while it was taken"))
        }
        Err(error) => {
            let noted = app.store.abandon_build(&build, &provider, &template.id).await;
            app.builds.kick();
            noted?;
            Err(error)
        }
    }
}

async fn committed(app: &App, sandbox: SandboxId, provider: &str) -> ApiResult<Finished> {
    let Some(templates) = app.provider.templates() else {
        return Err(ApiError::bad_request("no snapshots on this backend"));
    };
    let options = CommitOptions {
        sandbox,
        template: TemplateId::new(provider)?,
        capture_paths: Vec::new(),
        label: None,
    };
    let Ok(made) = tokio::time::timeout(TIME, templates.commit(options)).await else {
        let message = format!("the snapshot was not done within {} s", TIME.as_secs());
        return Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, message));
    };
    Ok(Finished { size_bytes: made?.size_bytes, ..Finished::default() })
}

/// `GET /snapshots`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    Query(query): Query<ListQuery>,
) -> ApiResult<Response> {
    let limit = query.limit.unwrap_or(MAX_PAGE);
    let limit = usize::try_from(limit).ok().filter(|_| (1..=MAX_PAGE).contains(&limit)).ok_or_else(|| {
        ApiError::bad_request(format!("limit {limit} is not valid: expected a number from 1 to {MAX_PAGE}"))
    })?;
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let name = given(query.name).map(|name| Reference::parse(&name)).transpose()?;
    let is_foreign = name
        .as_ref()
        .and_then(|name| name.namespace.as_deref())
        .is_some_and(|namespace| namespace != tenant.id);
    let mut rows = if is_foreign {
        Vec::new()
    } else {
        let sandbox = given(query.sandbox).map(|id| id.split('-').next().unwrap_or_default().to_owned());
        let (name, tag) = name.map_or((None, None), |name| (Some(name.name), name.tag));
        let after = given(query.next_token).map(|token| place(&token)).transpose()?;
        let query = SnapshotQuery { sandbox, name, tag, after, limit: limit + 1 };
        app.store.snapshots(&tenant.id, query).await?
    };
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(token);
    let infos: Vec<_> =
        rows.iter().map(|row| info(&tenant, &row.template, row.name.as_deref(), &row.tag)).collect();
    let mut response = axum::Json(infos).into_response();
    if let Some(next) = next.and_then(|next| next.parse().ok()) {
        response.headers_mut().insert("x-next-token", next);
    }
    Ok(response)
}

fn info(tenant: &Tenant, template: &str, name: Option<&str>, tag: &str) -> SnapshotInfo {
    match name {
        Some(name) => {
            let full = format!("{}/{name}:{tag}", tenant.id);
            SnapshotInfo { snapshot_id: full.clone(), names: vec![full] }
        }
        None => SnapshotInfo { snapshot_id: format!("{template}:{tag}"), names: Vec::new() },
    }
}

fn token(row: &SnapshotRow) -> String {
    let (at, key) = row.position();
    URL_SAFE_NO_PAD.encode(format!("{at}__{key}"))
}

fn place(token: &str) -> ApiResult<(String, String)> {
    let invalid = || ApiError::bad_request("Invalid next token");
    if token.len() > MAX_TOKEN {
        return Err(invalid());
    }
    let text = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(invalid)?;
    let (at, key) = text.split_once("__").ok_or_else(invalid)?;
    if at.parse::<jiff::Timestamp>().is_err() {
        return Err(invalid());
    }
    Ok((at.to_owned(), key.to_owned()))
}
