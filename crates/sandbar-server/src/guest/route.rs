use axum::body::Body;
use http::Request;

use crate::app::App;
use crate::error::ApiResult;

/// Where a request for a sandbox goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The sandbox' id, as it was given.
    pub(crate) id: String,
    /// The port inside.
    pub(crate) port: u16,
}

/// Which sandbox a request is for; `None` if it is for the control plane.
#[allow(clippy::unnecessary_wraps)]
pub(crate) fn route(_app: &App, _request: &Request<Body>) -> ApiResult<Option<Route>> {
    Ok(None)
}
