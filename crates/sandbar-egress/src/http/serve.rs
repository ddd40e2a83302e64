use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};

use super::answer::Answer;
use super::context::{HttpContext, Plain, Stream, Transport};
use super::guard::{Guard, Stop};
use super::session::Session;
use crate::peek::{HeadFlaw, MAX_FIELDS};

/// Most of a body that is held at once.
const BUFFER: usize = 256 << 10;
/// Bytes that a `websocket` moves at once, in each direction.
const SPLICE: usize = 64 << 10;
/// How long a client that was refused may take to read why, and how much it may send meanwhile that nobody looks at. An end with unread bytes would
/// take the answer away from it.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES: usize = 1 << 20;

/// Serves a connection of the sandbox for port 80 until either side ends it. How long nothing may move on it is for the caller to bound; the waits for heads
/// of requests are bounded here.
pub async fn serve(stream: impl Stream, context: HttpContext) -> io::Result<()> {
    let transport = Arc::new(Plain(context.dial.clone()));
    exchange(stream, context, transport).await
}

/// Serves requests that travel as `transport` says.
pub(crate) async fn exchange(
    stream: impl Stream,
    context: HttpContext,
    transport: Arc<dyn Transport>,
) -> io::Result<()> {
    let session = Arc::new(Session::new(context, transport));
    let service = {
        let session = session.clone();
        service_fn(move |request| {
            let session = session.clone();
            // In a box, so that the connection can be taken apart when it ends.
            let answer = async move { Ok::<_, Infallible>(session.answer(request).await) };
            Box::pin(answer) as Pin<Box<dyn Future<Output = _> + Send>>
        })
    };
    let mut connection = http1::Builder::new()
        // Else bytes that follow are read before they are due.
        .half_close(true)
        .auto_date_header(false)
        .max_headers(MAX_FIELDS)
        .max_buf_size(BUFFER)
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(Guard::new(stream)), service);
    let result = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    let parts = connection.into_parts();
    let guard = parts.io.into_inner();
    let stop = guard.stop();
    let (stream, rest) = guard.into_parts();
    if let Some(outside) = session.upgraded().await {
        // The guard lets one message through at a time, so nothing of what follows can have been read.
        return if parts.read_buf.is_empty() { splice(stream, &rest, outside).await } else { Ok(()) };
    }
    if let Some(stop) = stop {
        return refuse(stream, &session, stop).await;
    }
    linger(stream).await;
    result.map_err(io::Error::other)
}

/// Tells that what came is refused, and the client too where it waits for an answer to it.
async fn refuse(mut stream: impl Stream, session: &Session, stop: Stop) -> io::Result<()> {
    let Some(reason) = stop.reason() else { return stream.shutdown().await };
    let detail = match stop {
        Stop::Flaw { flaw, .. } => Some(flaw.to_string()),
        Stop::TooSlow | Stop::Idle => None,
    };
    let answer = session.denied(reason, detail);
    let is_http = !matches!(stop, Stop::Flaw { flaw: HeadFlaw::NotHttp, .. });
    if is_http && !matches!(stop, Stop::Flaw { in_head: false, .. }) {
        let bytes = Answer::into_bytes(answer);
        tokio::time::timeout(LINGER, stream.write_all(&bytes)).await.unwrap_or(Ok(()))?;
    }
    linger(stream).await;
    Ok(())
}

/// Ends a connection such that the client can read what was sent last.
async fn linger(mut stream: impl Stream) {
    let _ = tokio::time::timeout(LINGER, async {
        stream.shutdown().await?;
        let mut left = LINGER_BYTES;
        let mut bytes = vec![0; 8 << 10];
        while left > 0 {
            match stream.read(&mut bytes).await? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        io::Result::Ok(())
    })
    .await;
}

async fn splice(mut inside: impl Stream, rest: &[u8], outside: Upgraded) -> io::Result<()> {
    let mut outside = TokioIo::new(outside);
    outside.write_all(rest).await?;
    copy_bidirectional_with_sizes(&mut inside, &mut outside, SPLICE, SPLICE).await.map(|_| ())
}
