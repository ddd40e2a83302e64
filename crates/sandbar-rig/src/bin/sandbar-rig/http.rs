//! HTTP/1.1 and HTTP/2: pages for tests, and whole sites from folders.
//!
//! `/bytes/N`, `/drip?count=N&ms=M`, `/redirect?to=URL`, `/status/CODE`, `/upload` (says how much came), `/ws` (a WebSocket echo);
//! everything else answers a JSON object of the request.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt, stream};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, LOCATION, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, UPGRADE,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use sandbar_rig::wire;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::files;
use crate::ledger::plain;
use crate::state::State;

/// Bytes of one piece of a large body.
const PIECE: usize = 64 * 1024;
/// Pieces of `/drip`, and milliseconds between them, where the request does not say.
const DRIPS: u64 = 10;
const DRIP_MS: u64 = 100;
/// How long a WebSocket may last.
const SOCKET_LIFE: Duration = Duration::from_secs(600);

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// Where a connection came to.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) to: SocketAddr,
    pub(crate) server_name: Option<String>,
}

/// Serves one connection to its end.
pub(crate) async fn serve<S>(stream: S, place: Place, state: Arc<State>) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let (place, state) = (place.clone(), Arc::clone(&state));
        async move { Ok::<_, Infallible>(respond(request, &place, &state).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new());
    server.http2().timer(TokioTimer::new());
    server.serve_connection_with_upgrades(TokioIo::new(stream), service).await.map_err(std::io::Error::other)
}

async fn respond(request: Request<Incoming>, place: &Place, state: &State) -> Response<Body> {
    let named = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let authority = request.uri().authority().map(hyper::http::uri::Authority::as_str);
    let host = authority.or(named).unwrap_or_default().to_owned();
    let site = plain(host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name));
    let headers: Vec<(String, String)> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let path = request.uri().path().to_owned();
    state.ledger.request(|seq| wire::Request {
        seq,
        host: site.clone(),
        method: request.method().to_string(),
        path: path.clone(),
        version: format!("{:?}", request.version()),
        server_name: place.server_name.clone(),
        headers: headers.clone(),
        to: place.to,
    });
    if let Some(folder) = state.folder(&site) {
        return files::respond(&folder, request.method(), &path);
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').splitn(2, '/').collect();
    match parts.as_slice() {
        ["bytes", count] => large(count.parse().unwrap_or_default()),
        ["drip"] => drip(number(&query, "count", DRIPS), number(&query, "ms", DRIP_MS)),
        ["redirect"] => redirect(&value(&query, "to").unwrap_or_default()),
        ["status", code] => {
            let code = code.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
            text(code.unwrap_or(StatusCode::BAD_REQUEST), "")
        }
        ["upload"] => upload(request).await,
        ["ws"] => socket(request),
        _ => {
            let answer = json!({
                "method": request.method().to_string(),
                "host": host,
                "path": path,
                "query": query,
                "version": format!("{:?}", request.version()),
                "headers": headers,
                "server_name": place.server_name,
                "to": place.to.to_string(),
            });
            let mut response = text(StatusCode::OK, &answer.to_string());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
    }
}

pub(crate) fn text(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}

fn large(count: u64) -> Response<Body> {
    let piece = Bytes::from(vec![b'x'; PIECE]);
    let body = stream::unfold(count, move |left| {
        let piece = piece.clone();
        async move {
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
            (length > 0).then(|| (Ok(Frame::data(piece.slice(..length))), left - length as u64))
        }
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(body)));
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(count));
    response
}

fn drip(count: u64, pause: u64) -> Response<Body> {
    let body = stream::unfold(0, move |sent| async move {
        if sent >= count {
            return None;
        }
        if sent > 0 {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        Some((Ok(Frame::data(Bytes::from(format!("drip {sent}\n")))), sent + 1))
    });
    Response::new(BodyExt::boxed(StreamBody::new(body)))
}

fn redirect(to: &str) -> Response<Body> {
    let mut response = text(StatusCode::FOUND, "");
    match HeaderValue::from_str(to) {
        Ok(to) => {
            response.headers_mut().insert(LOCATION, to);
            response
        }
        Err(_) => text(StatusCode::BAD_REQUEST, "not a place\n"),
    }
}

async fn upload(request: Request<Incoming>) -> Response<Body> {
    let mut body = request.into_body();
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => received += frame.data_ref().map_or(0, Bytes::len),
            Err(e) => return text(StatusCode::BAD_REQUEST, &e.to_string()),
        }
    }
    text(StatusCode::OK, &json!({ "received": received }).to_string())
}

fn socket(mut request: Request<Incoming>) -> Response<Body> {
    let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY).filter(|_| request.method() == Method::GET)
    else {
        return text(StatusCode::BAD_REQUEST, "not a WebSocket\n");
    };
    let accept = derive_accept_key(key.as_bytes());
    let upgrade = hyper::upgrade::on(&mut request);
    // Ends with its connection, and after a while in any case.
    tokio::spawn(tokio::time::timeout(SOCKET_LIFE, async move {
        let Ok(upgraded) = upgrade.await else { return };
        let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
                return;
            }
        }
    }));
    let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

fn number(query: &str, name: &str, otherwise: u64) -> u64 {
    value(query, name).and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn value(query: &str, name: &str) -> Option<String> {
    let pair = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(String::from_utf8_lossy(&files::decode(pair)).into_owned())
}
