use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;

use super::name::Reference;
use crate::error::{ApiError, ApiResult};

/// The variable parts of a path with a template, and what of it.
pub(crate) struct TemplatePath {
    /// The template.
    pub(crate) template: Reference,
    /// Its text, as it came.
    pub(crate) text: String,
    /// The second variable part; empty where there is none.
    pub(crate) second: String,
}

impl<S: Send + Sync> FromRequestParts<S> for TemplatePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|error| ApiError::bad_request(format!("invalid path: {}", error.body_text())))?;
        let mut params = params.iter().map(|(_, value)| value.to_owned());
        let text = params.next().unwrap_or_default();
        Ok(Self { template: Reference::parse(&text)?, text, second: params.next().unwrap_or_default() })
    }
}
