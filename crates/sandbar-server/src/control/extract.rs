//! What is taken from a request, with errors in E2B's shape.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams};
use bytes::Bytes;
use http::request::Parts;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde::de::DeserializeOwned;

use crate::error::{ApiError, ApiResult};

/// Largest JSON body, in bytes: environment and metadata at their largest, with room for what JSON adds. Template steps have to fit as well.
pub(crate) const MAX_JSON_BODY: usize = 4 << 20;

/// A JSON body.
pub(crate) struct Json<T>(pub(crate) T);

/// A JSON body that may be absent; then everything in it is.
pub(crate) struct OptionalJson<T>(pub(crate) T);

/// The query, each name at most once.
pub(crate) struct Query<T>(pub(crate) T);

/// The one variable part of a path.
pub(crate) struct PathId(pub(crate) String);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request<Body>, _: &S) -> ApiResult<Self> {
        read(&bounded(request.into_body()).await?).map(Self)
    }
}

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request<Body>, _: &S) -> ApiResult<Self> {
        let body = bounded(request.into_body()).await?;
        let is_absent = body.trim_ascii().is_empty() || body.trim_ascii() == b"null";
        if is_absent { Ok(Self(T::default())) } else { read(&body).map(Self) }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Self> {
        let query = axum::extract::Query::try_from_uri(&parts.uri);
        query
            .map(|axum::extract::Query(value)| Self(value))
            .map_err(|error| ApiError::bad_request(format!("invalid query: {}", error.body_text())))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|error| ApiError::bad_request(format!("invalid path: {}", error.body_text())))?;
        let first = params.iter().next().map(|(_, value)| value.to_owned());
        first.map(Self).ok_or_else(|| ApiError::bad_request("invalid path: it names nothing"))
    }
}

/// The whole body, whether its length was declared or not.
async fn bounded(body: Body) -> ApiResult<Bytes> {
    let too_large = || {
        let message = format!("the body is larger than {MAX_JSON_BODY} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    // What says beforehand that it is too large is not waited for.
    if body.size_hint().lower() > MAX_JSON_BODY as u64 {
        return Err(too_large());
    }
    match Limited::new(body, MAX_JSON_BODY).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(ApiError::bad_request("the body ended before it was whole")),
    }
}

/// Members that clients send for themselves: what they do is done before a request is sent.
const OF_CLIENTS: [&str; 3] = ["forceUpload", "resolveSymlinks", "gzip"];

/// Longest name of a member that is repeated, in characters.
const MAX_SHOWN: usize = 100;

/// What a body says, all of it: a member that nobody reads would be a wish that is not heard. The text of an error names what was expected and where, and no
/// value but a short one of the wrong kind.
fn read<T: DeserializeOwned>(body: &[u8]) -> ApiResult<T> {
    let refused = |what: &str| ApiError::bad_request(format!("invalid body: {what}"));
    if body.trim_ascii_start().first().is_some_and(|first| matches!(first, b'[' | b'"' | b'0'..=b'9' | b'-'))
    {
        return Err(refused("it is not an object: expected {…} with named members"));
    }
    let mut unknown = None;
    let mut parser = serde_json::Deserializer::from_slice(body);
    let value = serde_ignored::deserialize(&mut parser, |path| {
        let path = path.to_string();
        if !OF_CLIENTS.iter().any(|name| path.rsplit('.').next() == Some(name)) {
            unknown.get_or_insert(path);
        }
    });
    let value = value.and_then(|value| parser.end().map(|()| value)).map_err(|error| {
        let what = match error.classify() {
            serde_json::error::Category::Data => redacted(&error.to_string()),
            _ => format!("it is not JSON (line {}, column {})", error.line(), error.column()),
        };
        refused(&what)
    })?;
    match unknown {
        None => Ok(value),
        Some(path) => {
            // What may be absent has a step of its own in the path.
            let path = path.replace("?.", "");
            let path: String = path.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect();
            Err(refused(&format!(
                "nothing here knows the member `{path}`: leave it out, or look how it is spelt"
            )))
        }
    }
}

/// Without the value of the wrong kind, which may be a secret that was put in the wrong place.
fn redacted(message: &str) -> String {
    match (message.find('"'), message.rfind("\", expected")) {
        (Some(first), Some(last)) if first < last => {
            format!("{}…{}", &message[..=first], &message[last..])
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use sandbar_wire::e2b::NewSandbox;

    use super::*;

    #[tokio::test]
    async fn a_body_is_bounded_and_its_errors_have_the_shape() {
        let with = |body: Body| Request::builder().body(body).unwrap();
        let Json(read) =
            Json::<NewSandbox>::from_request(with(Body::from(r#"{"templateID":"a"}"#)), &()).await.unwrap();
        assert_eq!(read.template_id, "a");
        let status = async |body: Body| {
            Json::<NewSandbox>::from_request(with(body), &()).await.map(|_| ()).unwrap_err().status
        };
        assert_eq!(status(Body::empty()).await, StatusCode::BAD_REQUEST);
        assert_eq!(status(Body::from("{")).await, StatusCode::BAD_REQUEST);
        assert_eq!(status(Body::from("{}")).await, StatusCode::BAD_REQUEST);
        assert_eq!(status(Body::from(vec![b' '; MAX_JSON_BODY + 1])).await, StatusCode::PAYLOAD_TOO_LARGE);
        for odd in [r#"["base",20]"#, "7", r#""base""#] {
            assert_eq!(status(Body::from(odd)).await, StatusCode::BAD_REQUEST, "{odd}");
        }
        let none =
            OptionalJson::<sandbar_wire::e2b::PauseSandbox>::from_request(with(Body::from(" ")), &()).await;
        assert_eq!(none.unwrap().0.memory, None);
    }

    #[test]
    fn what_nobody_reads_is_refused_by_name() {
        let message = |body: &str| match read::<NewSandbox>(body.as_bytes()) {
            Ok(_) => String::new(),
            Err(error) => error.message,
        };
        assert_eq!(message(r#"{"templateID":"a","network":{"allowOut":[]}}"#), "");
        assert!(
            message(r#"{"templateID":"a","allowInternetAccess":false}"#).contains("`allowInternetAccess`")
        );
        assert!(message(r#"{"templateID":"a","network":{"denyout":[]}}"#).contains("`network.denyout`"));
        assert!(message(r#"{"templateID":"a"} {}"#).contains("not JSON"));
        let order =
            r#"{"steps":[{"type":"COPY","args":["a","b"],"filesHash":"x","forceUpload":true,"gzip":true}]}"#;
        assert!(read::<sandbar_wire::e2b::BuildOrder>(order.as_bytes()).is_ok());
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_not_repeated() {
        let error =
            read::<NewSandbox>(br#"{"templateID":"a","envVars":"s3\"cret"}"#).map(|_| ()).unwrap_err();
        assert!(
            !error.message.contains("cret") && error.message.contains("expected a map"),
            "{}",
            error.message
        );
    }
}
