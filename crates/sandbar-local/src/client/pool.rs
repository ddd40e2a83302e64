use std::sync::{Arc, Mutex, PoisonError};

use hyper::Response;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::body::{RequestBody, ResponseBody};
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
pub(super) struct Lease {
    sender: SendRequest<RequestBody>,
    idle: Arc<Mutex<Vec<SendRequest<RequestBody>>>>,
    reuse: Reuse,
}

/// Whether a connection is good for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// It is, once its answer was read.
    Yes,
    /// It is not: the answer may come before all of the request was sent.
    No,
}

/// Why a request got no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nobody listens: the agent is gone.
    Gone,
    /// The connection broke; the agent may have got the request.
    Broken(hyper::Error),
    /// It could not be connected for another reason.
    Connect(std::io::Error),
}

impl Lease {
    /// Keeps the connection for the next request.
    pub(super) fn give_back(self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if self.reuse == Reuse::Yes && idle.len() < KEPT && !self.sender.is_closed() {
            idle.push(self.sender);
        }
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
                    return Ok(response.map(|incoming| ResponseBody::new(incoming, lease)));
                }
                Err(mut failed) => match failed.take_message() {
                    // A kept connection that had ended: the request never left.
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(Failure::Broken(failed.into_error())),
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
            .map_err(Failure::Broken)?;
        // Ends when the last sender is dropped, or with the agent.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Lease { sender, idle: Arc::clone(&self.idle), reuse: Reuse::Yes })
    }
}
