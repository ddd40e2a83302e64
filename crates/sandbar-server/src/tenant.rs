use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::app::App;
use crate::error::ApiError;

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

impl FromRequestParts<Arc<App>> for Tenant {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let Some(given) = parts.headers.get(API_KEY_HEADER).and_then(|value| value.to_str().ok()) else {
            return Err(ApiError::unauthorized(
                "no API key: send one as X-API-KEY (`sandbar key create` makes one, SDKs read it from E2B_API_KEY)",
            ));
        };
        let Some(tenant) = app.store.tenant_of(given).await? else {
            return Err(ApiError::unauthorized(
                "the API key is not valid: `sandbar key ls` shows which there are",
            ));
        };
        app.limits.admit(&tenant)?;
        Ok(tenant)
    }
}
