use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use sandbar_core::SandboxProvider;
use sandbar_wire::e2b::{NewBuild, RegisteredBuild};

use super::name::{self, DEFAULT_TAG, Reference};
use super::resolve::TENANT_PREFIX;
use crate::app::App;
use crate::control::extract::Json;
use crate::error::{ApiError, ApiResult};
use crate::seal::hex;
use crate::store::{BuildStatus, Kind, Registration, random};
use crate::tenant::Tenant;

/// Templates that a tenant may have, snapshots included: more than anybody names by hand, and what a list of them still shows.
pub(super) const MAX_TEMPLATES: usize = 10_000;

/// Most tags that one call gives.
pub(super) const MAX_TAGS: usize = 32;

/// Most processors that a template may ask for: what the largest machines have.
const MAX_CPUS: i64 = 1024;

/// Least memory that a template may ask for, in MiB: E2B's own bound.
const MIN_MEMORY_MB: i64 = 128;

/// Most memory or disk that a template may ask for, in MiB: 16 TiB.
const MAX_MB: i64 = 16 << 20;

/// Random bytes of an id of a template.
const ID_BYTES: usize = 10;

/// `POST /v3/templates`
pub(super) async fn register(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    Json(asked): Json<NewBuild>,
) -> ApiResult<(StatusCode, axum::Json<RegisteredBuild>)> {
    require_builds(&*app.provider)?;
    let NewBuild { name, alias, tags, cpu_count, memory_mb, min_free_disk_mb, team_id } = asked;
    if team_id.is_some_and(|team| team != tenant.id) {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "teamID is none of yours: leave it out"));
    }
    let Some(text) = name.or(alias) else {
        return Err(ApiError::bad_request("name is missing: expected `name` or `name:tag`"));
    };
    let reference = own_reference(&tenant, &text)?;
    let tags = tags_of(reference.tag.as_deref(), tags.as_deref().unwrap_or_default())?;
    let build = uuid::Uuid::new_v4().to_string();
    let registration = Registration {
        cpu_count: within("cpuCount", cpu_count, 1, MAX_CPUS)?.and_then(|count| u32::try_from(count).ok()),
        memory_mb: within("memoryMB", memory_mb, MIN_MEMORY_MB, MAX_MB)?,
        free_disk_mb: within("minFreeDiskMb", min_free_disk_mb, 0, MAX_MB)?,
        tags: tags.clone(),
        ..fresh(&tenant, Some(reference), Kind::Build, build.clone())?
    };
    let Some(template) = app.store.register_build(registration).await? else { return Err(too_many()) };
    let aliases: Vec<_> = template.name.iter().cloned().collect();
    let answer = RegisteredBuild {
        names: aliases.iter().map(|alias| format!("{}/{alias}", tenant.id)).collect(),
        template_id: template.id,
        build_id: build,
        public: false,
        aliases,
        tags,
    };
    Ok((StatusCode::ACCEPTED, axum::Json(answer)))
}

/// A registration with ids of its own, that waits.
pub(super) fn fresh(
    tenant: &Tenant,
    reference: Option<Reference>,
    kind: Kind,
    build: String,
) -> ApiResult<Registration> {
    Ok(Registration {
        tenant: tenant.id.clone(),
        fresh_template: hex(&random::<ID_BYTES>()?),
        reference,
        kind,
        build,
        status: BuildStatus::Waiting,
        provider: format!("{TENANT_PREFIX}{}-{}", tenant.id, hex(&random::<ID_BYTES>()?)),
        tags: Vec::new(),
        sandbox: None,
        cpu_count: None,
        memory_mb: None,
        free_disk_mb: None,
        user: None,
        workdir: None,
        most: MAX_TEMPLATES,
    })
}

/// A name that the tenant may give.
pub(super) fn own_reference(tenant: &Tenant, text: &str) -> ApiResult<Reference> {
    let reference = Reference::parse(text)?;
    match &reference.namespace {
        Some(namespace) if *namespace != tenant.id => Err(ApiError::bad_request(format!(
            "namespace \"{namespace}\" is not yours: leave it out, or use \"{}\"",
            tenant.id
        ))),
        _ => Ok(reference),
    }
}

/// Tags of a name and tags beside it, each once; the default one where there are none.
pub(super) fn tags_of(of_name: Option<&str>, beside: &[String]) -> ApiResult<Vec<String>> {
    if beside.len() > MAX_TAGS {
        return Err(ApiError::bad_request(format!("{} tags: expected at most {MAX_TAGS}", beside.len())));
    }
    let mut tags = Vec::new();
    for text in of_name.into_iter().chain(beside.iter().map(String::as_str)) {
        let tag = name::tag(text)?;
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    if tags.is_empty() {
        tags.push(DEFAULT_TAG.to_owned());
    }
    Ok(tags)
}

pub(super) fn too_many() -> ApiError {
    ApiError::bad_request(format!("there are {MAX_TEMPLATES} templates and snapshots: delete some first"))
}

pub(super) fn require_builds(provider: &dyn SandboxProvider) -> ApiResult<()> {
    if provider.builds().is_some() && provider.templates().is_some() {
        return Ok(());
    }
    let why = provider.missing_reason("builds").unwrap_or_else(|| "it has no such part".to_owned());
    Err(ApiError::bad_request(format!(
        "templates can't be built on the backend `{}`: {why}",
        provider.name()
    )))
}

fn within(field: &str, value: Option<i64>, least: i64, most: i64) -> ApiResult<Option<u64>> {
    match value {
        None => Ok(None),
        Some(value) if (least..=most).contains(&value) => Ok(Some(value.unsigned_abs())),
        Some(value) => {
            Err(ApiError::bad_request(format!("{field} {value} is not valid: expected {least} to {most}")))
        }
    }
}
