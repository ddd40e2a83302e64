use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::AUTHORIZATION;
use http::request::Parts;

use crate::app::App;
use crate::error::ApiError;
use crate::limits::RateSlot;

/// Header with the key.
pub(crate) const API_KEY_HEADER: &str = "x-api-key";

/// Whom a request of the control plane is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    /// Its id; keys of one tenant see the same.
    pub(crate) id: String,
    /// Id of the key, for logs and limits.
    pub(crate) key: String,
}

/// Where the log finds whom a request was from.
#[derive(Clone, Debug, Default)]
pub(crate) struct TenantSlot(Arc<std::sync::OnceLock<Tenant>>);

impl TenantSlot {
    pub(crate) fn get(&self) -> Option<&Tenant> {
        self.0.get()
    }
}

impl FromRequestParts<Arc<App>> for Tenant {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let Some(given) = given(parts) else {
            return Err(ApiError::unauthorized(
                "no API key: send one as X-API-KEY (`sandbar key create` makes one, SDKs read it from E2B_API_KEY)",
            ));
        };
        let Some(tenant) = app.store.tenant_of(given).await? else {
            return Err(ApiError::unauthorized(
                "the API key is not valid: `sandbar key ls` shows which there are",
            ));
        };
        if let Some(slot) = parts.extensions.get::<TenantSlot>() {
            let _ = slot.0.set(tenant.clone());
        }
        let left = app.limits.admit(&tenant)?;
        if let Some(slot) = parts.extensions.get::<RateSlot>() {
            slot.fill(left);
        }
        Ok(tenant)
    }
}

/// The key as SDKs send it, or as a bearer token, as the CLI of E2B sends what it has.
fn given(parts: &Parts) -> Option<&str> {
    if let Some(value) = parts.headers.get(API_KEY_HEADER) {
        return value.to_str().ok();
    }
    parts.headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}
