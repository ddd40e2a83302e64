use std::rc::Rc;

use http::Method;
use http::header::{self, HeaderName, HeaderValue};
use sandbar_wire::envd::{Code, RpcError};

use super::call::{answer, content_type, has_type, stream};
use super::{filesystem, process};
use crate::http::{Request, Response, empty};
use crate::state::State;

const STREAM_ENCODING: HeaderName = HeaderName::from_static("connect-content-encoding");

/// Serves a call of one of the two services; `None` for another path.
pub(crate) async fn dispatch(state: &Rc<State>, request: Request) -> Option<Response> {
    let (service, method) = request.uri().path().strip_prefix('/')?.split_once('/')?;
    let (is_process, method) = match service {
        "process.Process" => (true, method.to_owned()),
        "filesystem.Filesystem" => (false, method.to_owned()),
        _ => return None,
    };
    let streams = matches!(method.as_str(), "Start" | "Connect" | "StreamInput" | "WatchDir");
    if request.method() != Method::POST {
        let mut response = empty(405);
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        return Some(response);
    }
    if !has_type(request.headers(), content_type(streams)) {
        let mut response = empty(415);
        response.headers_mut().insert("accept-post", HeaderValue::from_static(content_type(streams)));
        return Some(response);
    }
    let encoding = if streams { STREAM_ENCODING } else { header::CONTENT_ENCODING };
    if request.headers().get(encoding).is_some_and(|encoding| encoding != "identity") {
        let error =
            RpcError::new(Code::Unimplemented, "compressed messages are not supported; send `identity`");
        return Some(if streams { stream(Err(error)) } else { answer::<()>(Err(error)) });
    }
    Some(if is_process {
        process::dispatch(state, &method, request).await
    } else {
        filesystem::dispatch(state, &method, request).await
    })
}
