//! TCP at every address: what is spoken is found out by the first bytes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::LazyConfigAcceptor;

use crate::connection::{Counted, Rewound};
use crate::http::{self, Place};
use crate::ledger::{Entry, HEAD};
use crate::resolver::{self, Path};
use crate::state::State;

/// DNS, and DNS in TLS.
const DNS: u16 = 53;
const DNS_TLS: u16 = 853;
/// First byte of a TLS handshake.
const HANDSHAKE: u8 = 22;
/// Connections at one port.
const OPEN: usize = 8_192;
/// How long a connection may last.
const LIFE: Duration = Duration::from_secs(900);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4_096;

/// A listener for every address of one family.
pub(crate) fn open(any: IpAddr, port: u16) -> std::io::Result<TcpListener> {
    let domain = if any.is_ipv4() { socket2::Domain::IPV4 } else { socket2::Domain::IPV6 };
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    if any.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::new(any, port).into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves until the rig ends.
pub(crate) async fn serve(listener: TcpListener, state: Arc<State>) {
    let room = Arc::new(Semaphore::new(OPEN));
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, from)) = listener.accept().await else { continue };
        let state = Arc::clone(&state);
        tasks.spawn(async move {
            let _permit = permit;
            // However it ends, it is in the ledger.
            let _ = tokio::time::timeout(LIFE, connection(stream, from, state)).await;
        });
    }
}

async fn connection(stream: TcpStream, from: SocketAddr, state: Arc<State>) -> std::io::Result<()> {
    let to = stream.local_addr()?;
    stream.set_nodelay(true)?;
    let entry = state.ledger.connection(from, to);
    let mut stream = Counted::new(stream, Arc::clone(&entry));
    if let Some(greeting) = greeting(to.port()) {
        stream.write_all(greeting).await?;
    }
    let stream = Rewound::look(stream).await?;
    let first = stream.first();
    let _ = entry.head.set(first[..first.len().min(HEAD)].to_vec());
    if to.port() == DNS {
        let mut stream = stream;
        resolver::stream(&state, &mut stream, Path { transport: "tcp", from, to }).await;
        return Ok(());
    }
    if first.first() == Some(&HANDSHAKE) {
        return secured(stream, from, to, state, &entry).await;
    }
    speak(stream, Place { to, server_name: None }, state).await
}

async fn secured<S>(
    stream: S,
    from: SocketAddr,
    to: SocketAddr,
    state: Arc<State>,
    entry: &Entry,
) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let start = LazyConfigAcceptor::new(tokio_rustls::rustls::server::Acceptor::default(), stream).await?;
    let server_name = start.client_hello().server_name().map(str::to_owned);
    if let Some(name) = &server_name {
        let _ = entry.server_name.set(name.clone());
    }
    let name = server_name.clone().unwrap_or_else(|| to.ip().to_string());
    let config = state.authority.config(&name).map_err(std::io::Error::other)?;
    let mut stream = start.into_stream(config).await?;
    if to.port() == DNS_TLS {
        resolver::stream(&state, &mut stream, Path { transport: "tls", from, to }).await;
        return Ok(());
    }
    let protocol = stream.get_ref().1.alpn_protocol();
    let place = Place { to, server_name };
    // A client that agreed on HTTP may be silent at first.
    if protocol.is_some() {
        return http::serve(stream, place, state).await;
    }
    speak(Rewound::look(stream).await?, place, state).await
}

/// HTTP, or else whatever comes goes back.
async fn speak<S>(stream: Rewound<S>, place: Place, state: Arc<State>) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let first = stream.first();
    let method = first.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    if method >= 3 && first.get(method) == Some(&b' ') {
        return http::serve(stream, place, state).await;
    }
    let (mut reader, mut writer) = tokio::io::split(stream);
    tokio::io::copy(&mut reader, &mut writer).await?;
    writer.shutdown().await
}

/// What the server says first, where the protocol is one of those.
fn greeting(port: u16) -> Option<&'static [u8]> {
    match port {
        21 => Some(b"220 rig\r\n"),
        22 => Some(b"SSH-2.0-rig\r\n"),
        25 | 587 => Some(b"220 rig ESMTP\r\n"),
        _ => None,
    }
}
