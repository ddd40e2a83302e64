use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use sandbar_wire::e2b::{
    AliasAnswer, ListedBuild, ListedTemplate, TemplateUpdate, TemplateUpdated, TemplateWithBuilds,
};
use sandbar_wire::envd::ENVD_VERSION;

use super::path::TemplatePath;
use crate::app::App;
use crate::control::extract::OptionalJson;
use crate::error::{ApiError, ApiResult};
use crate::store::{BuildRow, Removal, TemplateRow};
use crate::tenant::Tenant;

/// `GET /templates` and `GET /v2/templates`
pub(super) async fn all(
    State(app): State<Arc<App>>,
    tenant: Tenant,
) -> ApiResult<axum::Json<Vec<ListedTemplate>>> {
    let listed = app.store.templates(&tenant.id).await?.into_iter().map(|(template, build, build_count)| {
        ListedTemplate {
            names: names(&tenant, &template),
            aliases: template.name.into_iter().collect(),
            template_id: template.id,
            build_id: build.id,
            cpu_count: build.cpu_count.unwrap_or_default(),
            memory_mb: build.memory_mb.unwrap_or_default(),
            disk_size_mb: build.size_bytes.map_or(0, in_mb),
            public: false,
            created_at: template.created_at,
            updated_at: template.updated_at,
            created_by: None,
            last_spawned_at: template.last_spawned_at,
            spawn_count: template.spawn_count,
            build_count,
            envd_version: ENVD_VERSION.to_owned(),
            build_status: build.status.as_str().to_owned(),
        }
    });
    Ok(axum::Json(listed.collect()))
}

/// `GET /templates/{id}`
pub(super) async fn one(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    path: TemplatePath,
) -> ApiResult<axum::Json<TemplateWithBuilds>> {
    let Some(template) = app.store.template(&tenant.id, &path.template).await? else {
        return Err(app.no_such(&tenant, &path.template, &path.text).await?);
    };
    let builds = app.store.builds(&template.id).await?.into_iter().map(listed_build).collect();
    Ok(axum::Json(TemplateWithBuilds {
        names: names(&tenant, &template),
        aliases: template.name.into_iter().collect(),
        template_id: template.id,
        public: false,
        created_at: template.created_at,
        updated_at: template.updated_at,
        last_spawned_at: template.last_spawned_at,
        spawn_count: template.spawn_count,
        builds,
    }))
}

/// `GET /templates/aliases/{alias}`
pub(super) async fn alias(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    path: TemplatePath,
) -> ApiResult<axum::Json<AliasAnswer>> {
    if let Some(found) = app.store.find_template(&tenant.id, &path.template).await? {
        if path.template.tag.is_some() && found.build.is_none() {
            return Err(app.no_such(&tenant, &path.template, &path.text).await?);
        }
        return Ok(axum::Json(AliasAnswer { template_id: found.template.id, public: false }));
    }
    if app.is_shared(&path.text).await? {
        return Ok(axum::Json(AliasAnswer { template_id: path.template.name, public: true }));
    }
    Err(ApiError::no_template(&path.text))
}

/// `PATCH /templates/{id}`
pub(super) async fn update_v1(
    state: State<Arc<App>>,
    tenant: Tenant,
    path: TemplatePath,
    asked: OptionalJson<TemplateUpdate>,
) -> ApiResult<axum::Json<serde_json::Value>> {
    update(state, tenant, path, asked).await.map(|_| axum::Json(serde_json::json!({})))
}

/// `PATCH /v2/templates/{id}`
pub(super) async fn update(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    path: TemplatePath,
    OptionalJson(asked): OptionalJson<TemplateUpdate>,
) -> ApiResult<axum::Json<TemplateUpdated>> {
    let Some(template) = app.store.template(&tenant.id, &path.template).await? else {
        return Err(app.no_such(&tenant, &path.template, &path.text).await?);
    };
    if asked.public == Some(true) {
        return Err(ApiError::bad_request(
            "a template can't be made public here: the operator gives templates to everybody, by `sandbar template import` or `build`",
        ));
    }
    Ok(axum::Json(TemplateUpdated { names: names(&tenant, &template) }))
}

/// `DELETE /templates/{id}`, of snapshots too
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    path: TemplatePath,
) -> ApiResult<StatusCode> {
    match app.store.remove_template(&tenant.id, &path.template).await? {
        Removal::Done(running) => {
            app.builds.cancel(&running);
            app.builds.kick();
            Ok(StatusCode::NO_CONTENT)
        }
        Removal::NoTag(_) | Removal::NoTemplate => {
            Err(app.no_such(&tenant, &path.template, &path.text).await?)
        }
    }
}

fn names(tenant: &Tenant, template: &TemplateRow) -> Vec<String> {
    template.name.iter().map(|name| format!("{}/{name}", tenant.id)).collect()
}

fn listed_build(build: BuildRow) -> ListedBuild {
    ListedBuild {
        build_id: build.id,
        status: build.status.as_str().to_owned(),
        created_at: build.created_at,
        updated_at: build.updated_at,
        finished_at: build.finished_at,
        cpu_count: build.cpu_count.unwrap_or_default(),
        memory_mb: build.memory_mb.unwrap_or_default(),
        disk_size_mb: build.size_bytes.map(in_mb),
        envd_version: Some(ENVD_VERSION.to_owned()),
    }
}

fn in_mb(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}
