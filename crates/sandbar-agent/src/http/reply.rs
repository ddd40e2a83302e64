use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::body::Incoming;
use sandbar_wire::envd::{HttpError, RpcError, UNARY_CONTENT_TYPE};
use serde::Serialize;

use super::Body;

pub(crate) type Request = http::Request<Incoming>;
pub(crate) type Response = http::Response<Body>;

/// An answer without a body.
pub(crate) fn empty(status: u16) -> Response {
    with_status(status, Body::Full(None))
}

pub(crate) fn json<T: Serialize>(status: u16, value: &T) -> Response {
    let body = Bytes::from(serde_json::to_vec(value).unwrap_or_default());
    let mut response = with_status(status, body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(UNARY_CONTENT_TYPE));
    response
}

pub(crate) fn error(error: &HttpError) -> Response {
    json(error.code, error)
}

/// The plain HTTP form of an error that the services have in common.
pub(crate) fn from_rpc(error: RpcError) -> HttpError {
    HttpError::new(error.code.http_status(), error.message)
}

fn with_status(status: u16, body: Body) -> Response {
    let mut response = http::Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Lets web pages call, as envd does; the token protects, not the origin.
pub(crate) fn with_cors(mut response: Response, preflight: Option<&HeaderMap>) -> Response {
    const EXPOSED: &str = "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, Cache-Control, \
                           X-Content-Type-Options, X-Envd-Version, Content-Encoding, Content-Disposition";
    const ANY: HeaderValue = HeaderValue::from_static("*");
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    if let Some(request) = preflight {
        let methods = HeaderValue::from_static("HEAD, GET, POST, PUT, PATCH, DELETE");
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        let asked = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned().unwrap_or(ANY);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
        headers.insert(HeaderName::from_static("access-control-max-age"), HeaderValue::from_static("7200"));
    }
    response
}
