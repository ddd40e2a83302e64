use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderValue;
use http::header::HOST;
use hyper::Response;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use sandbar_guest::{Failure, RequestBody, ResponseBody, Reuse};

use crate::home::Folder;
use crate::inside::{Late, Unix};
use crate::shim::AGENT_SOCKET;

/// Connections kept for the next request; more are closed. Few commands run in parallel, and a connection is made in microseconds.
const KEPT: usize = 8;
/// Read buffer of a connection, in bytes: output comes in frames of up to about 64 KiB.
const BUFFER: usize = 512 << 10;

/// Connections to one agent that wait for the next request.
#[derive(Debug, Default)]
pub(super) struct Pool {
    idle: Arc<Mutex<Vec<SendRequest<RequestBody>>>>,
}

/// A connection in use.
#[derive(Debug)]
struct Lease {
    sender: SendRequest<RequestBody>,
    idle: Arc<Mutex<Vec<SendRequest<RequestBody>>>>,
    reuse: Reuse,
}

impl Lease {
    /// Keeps the connection for the next request.
    fn give_back(self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if self.reuse == Reuse::Yes && idle.len() < KEPT && !self.sender.is_closed() {
            idle.push(self.sender);
        }
    }
}

/// A response's body. Read to its end, it gives its connection back for the next request; dropped before, it closes it, which tells the agent.
struct Leased {
    incoming: Incoming,
    lease: Option<Lease>,
}

impl Leased {
    fn new(incoming: Incoming, lease: Lease) -> Self {
        let mut body = Self { incoming, lease: Some(lease) };
        body.settle();
        body
    }

    fn settle(&mut self) {
        if self.incoming.is_end_stream()
            && let Some(lease) = self.lease.take()
        {
            lease.give_back();
        }
    }
}

impl Body for Leased {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            return Poll::Pending;
        };
        match &frame {
            Some(Ok(_)) => self.settle(),
            Some(Err(_)) => self.lease = None,
            None => {
                if let Some(lease) = self.lease.take() {
                    lease.give_back();
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Pool {
    /// Sends a request and answers with what comes back.
    pub(super) async fn send(
        &self,
        folder: &Folder,
        mut request: hyper::Request<RequestBody>,
        reuse: Reuse,
    ) -> Result<Response<ResponseBody>, Failure> {
        request.headers_mut().insert(HOST, HeaderValue::from_static("sandbar"));
        loop {
            let (mut lease, fresh) = match self.take() {
                Some(lease) => (lease, false),
                None => (self.connect(folder).await?, true),
            };
            if !fresh && lease.sender.ready().await.is_err() {
                continue;
            }
            match lease.sender.try_send_request(request).await {
                Ok(response) => {
                    lease.reuse = reuse;
                    return Ok(response.map(|incoming| ResponseBody::new(Leased::new(incoming, lease))));
                }
                Err(mut failed) => match failed.take_message() {
                    // A kept connection that had ended: the request never left.
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(Failure::Broken(failed.into_error().into())),
                },
            }
        }
    }

    fn take(&self) -> Option<Lease> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(sender) = idle.pop() {
            if !sender.is_closed() {
                return Some(Lease { sender, idle: Arc::clone(&self.idle), reuse: Reuse::Yes });
            }
        }
        None
    }

    async fn connect(&self, folder: &Folder) -> Result<Lease, Failure> {
        use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
        let stream =
            Unix::connect(&folder.socket(AGENT_SOCKET), Late::Dropped).await.map_err(|cause| match cause
                .kind()
            {
                // Reset: it took the connection and ended before it looked at it.
                ConnectionRefused | ConnectionReset | NotFound => Failure::Gone,
                _ => Failure::Connect(cause),
            })?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|cause| Failure::Broken(cause.into()))?;
        // Ends when the last sender is dropped, or with the agent.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Lease { sender, idle: Arc::clone(&self.idle), reuse: Reuse::Yes })
    }
}
