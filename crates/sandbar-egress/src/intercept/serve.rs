use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use sandbar_core::{DecisionReason, Verdict};
use tokio_rustls::TlsAcceptor;

use super::authority::Authority;
use super::prefixed::Prefixed;
use super::tls::{HANDSHAKE, Tls};
use super::trust::Trust;
use crate::http::{HttpContext, HttpEvent, Stream, exchange, shown};

/// Serves a connection of the sandbox whose hello was read and names the host, until either side ends it. `prefix` is what was read of it.
pub async fn serve(
    stream: impl Stream,
    prefix: BytesMut,
    authority: &Authority,
    trust: &Trust,
    context: HttpContext,
) -> io::Result<()> {
    let server = authority.server(&context.name).map_err(io::Error::other)?;
    let handshake = TlsAcceptor::from(server).accept(Prefixed::new(prefix, stream));
    let accepted = match tokio::time::timeout(HANDSHAKE, handshake).await {
        Ok(accepted) => accepted,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long")),
    };
    let stream = match accepted {
        Ok(stream) => stream,
        Err(why) => {
            let detail = format!("with the sandbox: {}", shown(why.to_string().as_bytes()));
            (context.report)(HttpEvent {
                verdict: Verdict::Failed,
                reason: DecisionReason::TlsFailed,
                rule: (context.judge)().rule,
                address: None,
                detail: Some(detail),
            });
            return Err(why);
        }
    };
    let transport = Tls { name: context.name.clone(), dial: context.dial.clone(), client: trust.client() };
    exchange(stream, context, Arc::new(transport)).await
}
