use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use sandbar_wire::e2b::{AssignTags, AssignedTags, DeleteTags, TemplateTag};

use super::name::{self, DEFAULT_TAG, Reference};
use super::path::TemplatePath;
use super::register::MAX_TAGS;
use crate::app::App;
use crate::control::extract::Json;
use crate::error::{ApiError, ApiResult};
use crate::store::Removal;
use crate::tenant::Tenant;

/// `POST /templates/tags`
pub(super) async fn assign(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    Json(asked): Json<AssignTags>,
) -> ApiResult<(StatusCode, axum::Json<AssignedTags>)> {
    let target = Reference::parse(&asked.target)?;
    let tags = checked(&asked.tags)?;
    let Ok(build) = app.store.assign_tags(&tenant.id, &target, tags.clone()).await? else {
        return Err(app.no_such(&tenant, &target, &asked.target).await?);
    };
    app.builds.kick();
    Ok((StatusCode::CREATED, axum::Json(AssignedTags { build_id: build, tags })))
}

/// `DELETE /templates/tags`
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    Json(asked): Json<DeleteTags>,
) -> ApiResult<StatusCode> {
    let reference = Reference::parse(&asked.name)?;
    if reference.tag.is_some() {
        return Err(ApiError::bad_request("name can't have a tag here: tags are in `tags`"));
    }
    let tags = checked(&asked.tags)?;
    if tags.iter().any(|tag| tag == DEFAULT_TAG) {
        return Err(ApiError::bad_request(format!(
            "tag \"{DEFAULT_TAG}\" can't be deleted: delete the template, or build it again"
        )));
    }
    match app.store.remove_tags(&tenant.id, &reference, tags).await? {
        Removal::Done(_) => {
            app.builds.kick();
            Ok(StatusCode::NO_CONTENT)
        }
        Removal::NoTag(tag) => Err(ApiError::not_found(format!("template '{reference}' has no tag '{tag}'"))),
        Removal::NoTemplate => Err(app.no_such(&tenant, &reference, &asked.name).await?),
    }
}

/// `GET /templates/{id}/tags`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    path: TemplatePath,
) -> ApiResult<axum::Json<Vec<TemplateTag>>> {
    let Some(tags) = app.store.tags(&tenant.id, &path.template).await? else {
        return Err(app.no_such(&tenant, &path.template, &path.text).await?);
    };
    let tag = |row: crate::store::TagRow| TemplateTag {
        tag: row.tag,
        build_id: row.build,
        created_at: row.created_at,
    };
    Ok(axum::Json(tags.into_iter().map(tag).collect()))
}

impl App {
    /// Why a tenant's own template was not found: it is everybody's and can't be changed, it lacks the tag, or nobody says.
    pub(super) async fn no_such(
        &self,
        tenant: &Tenant,
        reference: &Reference,
        text: &str,
    ) -> ApiResult<ApiError> {
        if self.store.template(&tenant.id, reference).await?.is_some() {
            let tag = reference.tag_or_default();
            return Ok(ApiError::not_found(format!(
                "template '{reference}' has no build with the tag '{tag}'"
            )));
        }
        if self.is_shared(text).await? {
            let why = format!("template '{}' is the operator's: it can't be changed here", name::shown(text));
            return Ok(ApiError::new(StatusCode::FORBIDDEN, why));
        }
        Ok(ApiError::no_template(text))
    }
}

fn checked(tags: &[String]) -> ApiResult<Vec<String>> {
    if tags.is_empty() || tags.len() > MAX_TAGS {
        return Err(ApiError::bad_request(format!("{} tags: expected 1 to {MAX_TAGS}", tags.len())));
    }
    tags.iter().map(|tag| name::tag(tag)).collect()
}
