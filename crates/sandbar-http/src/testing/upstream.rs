//! The way on to the real server.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::body::Lost;

/// A connection to the server, which ends with this value.
pub(crate) struct Connection(#[expect(dead_code, reason = "held for its end")] JoinSet<()>);

/// Passes a request on, each on a connection of its own: what one client does then can't reach another's.
pub(crate) async fn pass(
    to: SocketAddr,
    request: Request<Onward>,
) -> Result<(Response<Incoming>, Connection), Lost> {
    let stream = TcpStream::connect(to).await.map_err(|_| Lost)?;
    stream.set_nodelay(true).map_err(|_| Lost)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|_| Lost)?;
    let mut task = JoinSet::new();
    task.spawn(async move {
        // How it ended is in the answer.
        let _ = connection.await;
    });
    let answer = sender.send_request(request).await.map_err(|_| Lost)?;
    Ok((answer, Connection(task)))
}

/// The body of a request on its way to the server.
pub(crate) struct Onward {
    body: Incoming,
    cut: Option<Cut>,
}

/// Where a body is cut.
struct Cut {
    /// How many bytes may still pass.
    left: u64,
    is_flushed: bool,
    has_happened: Arc<AtomicBool>,
}

impl Onward {
    pub(crate) fn whole(body: Incoming) -> Self {
        Self { body, cut: None }
    }

    pub(crate) fn cut_at(body: Incoming, bytes: u64, has_happened: Arc<AtomicBool>) -> Self {
        Self { body, cut: Some(Cut { left: bytes, is_flushed: false, has_happened }) }
    }
}

impl Body for Onward {
    type Data = Bytes;
    type Error = Lost;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Lost>>> {
        if let Some(cut) = self.cut.as_mut().filter(|cut| cut.left == 0) {
            if !cut.is_flushed {
                // Where nothing is to be sent, what was given before is: the server is to have it.
                cut.is_flushed = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            cut.has_happened.store(true, Ordering::SeqCst);
            return Poll::Ready(Some(Err(Lost)));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|_| Lost)?;
            let Some(cut) = &mut self.cut else { return Ok(frame) };
            let mut data = frame.into_data().unwrap_or_default();
            data.truncate(usize::try_from(cut.left).unwrap_or(usize::MAX));
            cut.left -= data.len() as u64;
            Ok(Frame::data(data))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.cut.as_ref().is_none_or(|cut| cut.left > 0) && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
