use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use sandbar_core::{ErrorKind, VolumeName, Volumes};
use sandbar_wire::e2b::{NewVolume, Volume, VolumeAndToken};

use crate::app::App;
use crate::control::extract::{Json, PathId};
use crate::error::{ApiError, ApiResult};
use crate::seal::hex;
use crate::store::{VolumeRow, random};
use crate::tenant::Tenant;

/// Longest name, in bytes: with the tenant's id it fits what backends take.
const MAX_NAME: usize = 128;

/// Volumes that a tenant may have.
const MAX_VOLUMES: usize = 10_000;

/// Random bytes of an id.
const ID_BYTES: usize = 10;

/// `POST /volumes`
pub(super) async fn create(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    Json(asked): Json<NewVolume>,
) -> ApiResult<(StatusCode, axum::Json<VolumeAndToken>)> {
    let volumes = volumes(&app)?;
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if asked.name.is_empty() || asked.name.len() > MAX_NAME || !asked.name.bytes().all(is_name) {
        return Err(ApiError::bad_request(format!(
            "the volume's name is not valid: expected 1 to {MAX_NAME} of `a-z A-Z 0-9 - _`"
        )));
    }
    let volume = VolumeRow { id: hex(&random::<ID_BYTES>()?), tenant: tenant.id.clone(), name: asked.name };
    let name = provider_name(&volume)?;
    if !app.store.add_volume(volume.clone(), MAX_VOLUMES).await? {
        let others = app.store.volumes(&tenant.id).await?;
        if others.iter().any(|other| other.name == volume.name) {
            return Err(ApiError::conflict(format!("volume '{}' exists already", volume.name)));
        }
        let message =
            format!("you have {MAX_VOLUMES} volumes, which is as many as there may be: delete some");
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message));
    }
    if let Err(error) = volumes.create(&name).await {
        app.store.remove_volume(&volume.id).await?;
        return Err(error.into());
    }
    Ok((StatusCode::CREATED, axum::Json(answer(&app, volume))))
}

/// `GET /volumes`
pub(super) async fn list(State(app): State<Arc<App>>, tenant: Tenant) -> ApiResult<axum::Json<Vec<Volume>>> {
    let rows = app.store.volumes(&tenant.id).await?.into_iter();
    Ok(axum::Json(rows.map(|row| Volume { volume_id: row.id, name: row.name }).collect()))
}

/// `GET /volumes/{id}`
pub(super) async fn one(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
) -> ApiResult<axum::Json<VolumeAndToken>> {
    let volume = of_tenant(&app, &tenant, &id).await?;
    Ok(axum::Json(answer(&app, volume)))
}

/// `DELETE /volumes/{id}`
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
) -> ApiResult<StatusCode> {
    let volume = of_tenant(&app, &tenant, &id).await?;
    // What serves its content holds it.
    app.rooms.close(&app, &volume.id).await?;
    volumes(&app)?.remove(&provider_name(&volume)?).await.map_err(|error| {
        if error.kind() == ErrorKind::Conflict {
            // In the backend's words it has another name.
            let message = format!("volume '{}' is attached to a sandbox: kill that first", volume.name);
            return ApiError::conflict(message);
        }
        error.into()
    })?;
    app.store.remove_volume(&volume.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The tenant's volume. One that does not exist and one of somebody else are the same answer.
async fn of_tenant(app: &App, tenant: &Tenant, id: &str) -> ApiResult<VolumeRow> {
    match app.store.volume(id).await? {
        Some(volume) if volume.tenant == tenant.id => Ok(volume),
        _ => Err(ApiError::not_found("the volume doesn't exist or you don't have access to it")),
    }
}

/// The provider's name of a volume.
pub(super) fn provider_name(volume: &VolumeRow) -> sandbar_core::Result<VolumeName> {
    VolumeName::new(format!("{}-{}", volume.tenant, volume.name))
}

/// The token that opens the content of a volume.
pub(super) fn token(app: &App, id: &str) -> String {
    app.seal.token("volume", &[id])
}

fn volumes(app: &App) -> ApiResult<&dyn Volumes> {
    app.provider.volumes().ok_or_else(|| {
        let why = app.provider.missing_reason("volumes").unwrap_or_else(|| "it has none".to_owned());
        ApiError::bad_request(format!("no volumes on the backend `{}`: {why}", app.provider.name()))
    })
}

fn answer(app: &App, volume: VolumeRow) -> VolumeAndToken {
    VolumeAndToken {
        token: token(app, &volume.id),
        volume_id: volume.id,
        name: volume.name,
        domain: Some(app.domain()),
    }
}
