use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::{Either, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;

use super::context::{ConnectError, Link, Transport};
use crate::peek::MAX_FIELDS;

/// How long a connection that answered may take to be ready for another request; it is a matter of its task running once.
const READY: Duration = Duration::from_millis(50);
/// Largest head of a response, and most of a body that is held at once.
const BUFFER: usize = 256 << 10;

/// The body of a request that goes out.
pub(super) type Outgoing = Either<Incoming, Empty<Bytes>>;

/// The connection to the host outside, kept for the requests of one connection of the sandbox.
#[derive(Default)]
pub(super) struct Upstream {
    kept: Option<Kept>,
}

struct Kept {
    sender: SendRequest<Outgoing>,
    _driver: Driver,
}

/// The task that moves a connection's bytes; it ends with its owner.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum SendError {
    Connect(ConnectError),
    /// The host took the connection and gave no answer that can be read.
    Answer(hyper::Error),
}

impl Upstream {
    /// Sends a request on the connection there is, or on a new one. If the host had just closed it, and nothing can have come of the request, it is
    /// sent once more.
    pub(super) async fn send(
        &mut self,
        transport: &dyn Transport,
        head: Parts,
        body: Incoming,
    ) -> Result<Response<Incoming>, SendError> {
        let is_empty = body.is_end_stream();
        let again = (is_empty && is_safe(&head.method)).then(|| head.clone());
        let body = if is_empty { Either::Right(Empty::new()) } else { Either::Left(body) };
        let mut request = Request::from_parts(head, body);
        if let Some(mut kept) = self.ready().await {
            match kept.sender.try_send_request(request).await {
                Ok(response) => {
                    self.kept = Some(kept);
                    return Ok(response);
                }
                Err(mut failed) => {
                    let unsent = failed.take_message();
                    let repeated =
                        || again.map(|head| Request::from_parts(head, Either::Right(Empty::new())));
                    request =
                        unsent.or_else(repeated).ok_or_else(|| SendError::Answer(failed.into_error()))?;
                }
            }
        }
        let mut kept = connect(transport.connect().await.map_err(SendError::Connect)?).await?;
        let response = kept.sender.send_request(request).await.map_err(SendError::Answer)?;
        self.kept = Some(kept);
        Ok(response)
    }

    /// The connection there is, if it can take a request.
    async fn ready(&mut self) -> Option<Kept> {
        let mut kept = self.kept.take()?;
        let ready = tokio::time::timeout(READY, kept.sender.ready()).await;
        matches!(ready, Ok(Ok(()))).then_some(kept)
    }
}

/// Whether a request changes nothing, so that it may be sent twice.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

async fn connect(link: Link) -> Result<Kept, SendError> {
    let (sender, connection) = http1::Builder::new()
        .max_headers(2 * MAX_FIELDS)
        .max_buf_size(BUFFER)
        .preserve_header_case(true)
        .handshake(TokioIo::new(link))
        .await
        .map_err(SendError::Answer)?;
    let driver = tokio::spawn(async move {
        // What went wrong is told to whoever waits for the response.
        let _ = connection.with_upgrades().await;
    });
    Ok(Kept { sender, _driver: Driver(driver) })
}
