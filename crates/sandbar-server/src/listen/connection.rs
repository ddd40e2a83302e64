use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::tls::Tls;
use crate::app::App;
use crate::dispatch::dispatch;

/// Longest head of a request, in bytes. SDKs send one or two thousand; signed URLs and metadata of files may be longer.
const MAX_HEAD: usize = 64 << 10;
/// Fields that a head may have.
const MAX_HEADERS: usize = 256;
/// How long the handshake of TLS may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Streams at once of one HTTP/2 connection. An SDK has all its calls on one.
const MAX_STREAMS: u32 = 1000;
/// What is sent ahead on a stream of HTTP/2, in bytes: at a round trip of a millisecond more than a gigabyte a second.
const WINDOW: u32 = 2 << 20;
/// How often an HTTP/2 peer is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);
/// When a silent TCP peer is asked for the first time whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Between further questions.
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(15);
/// How long a peer may leave what was sent unread or unanswered, in milliseconds: it is gone, or wants no more.
const UNREAD_LIMIT_MS: u32 = 180_000;

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) app: Arc<App>,
    pub(super) control: Router,
    pub(super) tls: Option<Tls>,
    /// Requests under way may end, no others begin.
    pub(super) ending: CancellationToken,
    /// Nothing goes on.
    pub(super) broken: CancellationToken,
}

/// Serves one connection to its end.
pub(super) async fn connection(shared: &Arc<Shared>, stream: TcpStream, address: SocketAddr) {
    let _ = set_options(&stream);
    let Some(tls) = &shared.tls else {
        return http1(shared, stream, Peer { address, is_tls: false }).await;
    };
    let peer = Peer { address, is_tls: true };
    let handshake = tokio::time::timeout(HANDSHAKE_LIMIT, tls.acceptor().await.accept(stream));
    let handshake = tokio::select! {
        handshake = handshake => handshake,
        () = shared.ending.cancelled() => return,
    };
    match handshake {
        Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
            http2(shared, stream, peer).await;
        }
        Ok(Ok(stream)) => http1(shared, stream, peer).await,
        Ok(Err(error)) => tracing::debug!(%error, %address, "a TLS handshake failed"),
        Err(_) => tracing::debug!(%address, "a TLS handshake took too long"),
    }
}

/// So that a peer that is gone without a word is noticed.
fn set_options(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_AGAIN)?;
    sockopt::set_tcp_user_timeout(stream, UNREAD_LIMIT_MS)?;
    Ok(())
}

async fn http1<S>(shared: &Arc<Shared>, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| answer(shared, peer, request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.app.config.head_limit)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shared.broken.cancelled() => return,
        () = shared.ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = shared.broken.cancelled() => return,
            }
        }
    };
    note(ended, peer);
}

async fn http2<S>(shared: &Arc<Shared>, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = {
        let shared = Arc::clone(shared);
        service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { answer(&shared, peer, request).await }
        })
    };
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW * 4)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection: Pin<&mut _> = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shared.broken.cancelled() => return,
        () = shared.ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = shared.broken.cancelled() => return,
            }
        }
    };
    note(ended, peer);
}

fn note(ended: hyper::Result<()>, peer: Peer) {
    if let Err(error) = ended {
        tracing::debug!(%error, address = %peer.address, "a connection ended");
    }
}

async fn answer(
    shared: &Arc<Shared>,
    peer: Peer,
    mut request: Request<Incoming>,
) -> Result<Response, Infallible> {
    request.extensions_mut().insert(peer);
    Ok(dispatch(Arc::clone(&shared.app), shared.control.clone(), request.map(Body::new)).await)
}
