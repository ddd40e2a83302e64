use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::{Body, Frame};
use sandbar_core::{ByteStream, Error, ErrorKind, Result, Retry, SandboxId};
use sandbar_guest::{EnvdVersion, Failure, RequestBody, ResponseBody, Reuse, Transport};
use sandbar_http::{Idempotency, RetryPolicy, Streamed};

use super::refusal::{Refusal, refusal};
use crate::access::{Access, GuestAddress};
use crate::config::BACKEND;

/// How long the agent may take to say that it is there: what the official SDKs allow.
const HEALTH: Duration = Duration::from_secs(5);
/// Where it says so.
const HEALTH_PATH: &str = "/health";
/// Where files are: their own host is the better way for what takes long.
const FILES_PATH: &str = "/files";
/// Longest refusal that is read, in bytes: what is no answer of the agent's is a sentence in JSON, or a page.
const MAX_REFUSAL: usize = 256 << 10;
/// Largest body that is held to be sent at once, in bytes: what is there already, and no stream.
const MAX_WHOLE: u64 = 16 << 20;
/// How long an answer may be silent. Streams and transfers have bounds of their own, which know what they wait for.
const SILENCE: Duration = Duration::from_secs(3600);
/// Attempts of what changes nothing: one more than none, as a sandbox that is gone is not there the next time either.
const ATTEMPTS: u32 = 2;
/// Between them.
const PAUSE: Duration = Duration::from_millis(200);

/// The way to the agent: HTTPS, past E2B's own proxy.
#[derive(Debug)]
pub(super) struct Https {
    access: Access,
}

impl Https {
    pub(super) fn new(access: Access) -> Self {
        Self { access }
    }

    async fn open(
        &self,
        address: &GuestAddress,
        request: Request<RequestBody>,
        bound: Duration,
        operation: &'static str,
    ) -> Result<Streamed> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let origin = if path == FILES_PATH { &address.direct } else { &address.base };
        let query = head.uri.path_and_query().map_or(path, |both| both.as_str());
        let mut sent = sandbar_http::Request::new(operation, head.method.clone(), format!("{origin}{query}"))
            .with_resource(format!("sandbox `{}`", self.access.id()))
            .with_timeout(bound)
            .with_idle_timeout(SILENCE);
        if changes_nothing(&head.method, path) {
            let policy = RetryPolicy::default().with_attempts(ATTEMPTS).with_pauses(PAUSE, PAUSE);
            sent = sent.with_idempotency(Idempotency::Safe).with_retry(policy);
        }
        for (name, value) in &head.headers {
            let value = value.to_str().map_err(|_| {
                Error::invalid(operation, format!("the header `{name}` is no text")).with_backend(BACKEND)
            })?;
            sent = sent.with_header(name.as_str(), value);
            if name == CONTENT_TYPE && value.starts_with("application/") && is_call(path) {
                sent = sent.with_header("connect-protocol-version", "1");
            }
        }
        let sent = address.sign(sent);
        let sent = match body.size_hint().exact() {
            Some(0) => sent,
            Some(length) if length <= MAX_WHOLE => {
                let whole = body.collect().await.map_err(|cause| broken(operation, &cause))?;
                sent.with_bytes(whole.to_bytes())
            }
            length => sent.with_stream(stream_of(body, operation), length),
        };
        self.access.http(operation)?.open(sent).await
    }

    /// Whether the agent says that it is there; what stands before it says so where it is not.
    async fn is_there(&self, operation: &'static str) -> Result<bool> {
        let address = self.access.guest(operation).await?;
        let request = sandbar_http::Request::get(operation, format!("{}{HEALTH_PATH}", address.base))
            .with_timeout(HEALTH)
            .with_retry(RetryPolicy::once());
        let response = self.access.http(operation)?.send(address.sign(request)).await?;
        Ok(response.status().is_success())
    }

    fn unknown(&self, operation: &'static str, why: &str, retry: Retry) -> Error {
        let id = self.access.id();
        Error::new(
            ErrorKind::Unavailable,
            operation,
            format!("the state of sandbox `{id}` is unknown: {why}"),
        )
        .with_backend(BACKEND)
        .with_resource(format!("sandbox `{id}`"))
        .with_retry(retry)
    }
}

#[async_trait]
impl Transport for Https {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn sandbox(&self) -> &SandboxId {
        self.access.id()
    }

    async fn send(
        &self,
        request: Request<RequestBody>,
        _: Reuse,
        bound: Duration,
        operation: &'static str,
    ) -> Result<Response<ResponseBody>> {
        let address = self.access.guest(operation).await?;
        let safe = changes_nothing(request.method(), request.uri().path());
        let opened = self.open(&address, request, bound, operation).await;
        let answer = match opened {
            Ok(answer) => answer,
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                return Err(self.access.trouble(operation, error).await);
            }
            Err(error) => return Err(error),
        };
        let status = answer.status();
        if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(streaming(answer));
        }
        let headers = answer.headers().clone();
        let whole = answer.into_response(MAX_REFUSAL).await?;
        let retry = if safe { Retry::Safe } else { Retry::OutcomeUnknown };
        match refusal(status, whole.body()) {
            Refusal::NoSandbox => {
                let why = "nobody answers for it";
                Err(self.access.trouble(operation, self.unknown(operation, why, retry)).await)
            }
            Refusal::NoAgent => {
                let why = "it runs, and its agent does not listen";
                Err(self.access.trouble(operation, self.unknown(operation, why, Retry::Safe)).await)
            }
            Refusal::InTransition => {
                let why = "it is being paused or resumed";
                Err(self.access.trouble(operation, self.unknown(operation, why, Retry::Safe)).await)
            }
            Refusal::Gateway => {
                Err(self.access.trouble(operation, whole.unexpected().with_retry(retry)).await)
            }
            Refusal::Token => {
                // It may have another one since; the next call asks.
                self.access.forget();
                Err(whole
                    .refused("the sandbox' agent does not take its token")
                    .with_hint("try again: the token is asked for anew"))
            }
            Refusal::Agents => {
                let mut response =
                    Response::new(ResponseBody::new(http_body_util::Full::new(whole.body().clone())));
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                Ok(response)
            }
        }
    }

    async fn lost(&self, operation: &'static str, failure: Failure) -> Error {
        let (why, retry) = match &failure {
            Failure::Gone => ("its agent does not listen".to_owned(), Retry::Safe),
            Failure::Broken(cause) => (format!("the connection broke: {cause}"), Retry::OutcomeUnknown),
            Failure::Connect(cause) => (format!("it can't be connected: {cause}"), Retry::Safe),
            Failure::Silent(bound) => {
                (format!("its agent said nothing for {} s", bound.as_secs()), Retry::OutcomeUnknown)
            }
        };
        let otherwise = self.unknown(operation, &why, retry);
        match tokio::time::timeout(HEALTH, self.is_there(operation)).await {
            Ok(Ok(true)) => otherwise,
            _ => self.access.trouble(operation, otherwise).await,
        }
    }

    async fn envd_version(&self, operation: &'static str) -> Result<EnvdVersion> {
        let told = &self.access.guest(operation).await?.envd_version;
        told.parse().map_err(|cause| {
            let message = format!("the version of the sandbox' agent is `{}`: {cause}", told.escape_debug());
            Error::new(ErrorKind::Protocol, operation, message).with_backend(BACKEND)
        })
    }
}

/// What may be sent twice.
fn changes_nothing(method: &Method, path: &str) -> bool {
    *method == Method::GET
        || matches!(
            path,
            "/process.Process/List" | "/filesystem.Filesystem/Stat" | "/filesystem.Filesystem/ListDir"
        )
}

/// Whether it is a call of the Connect protocol.
fn is_call(path: &str) -> bool {
    path.starts_with("/process.") || path.starts_with("/filesystem.")
}

fn broken(operation: &'static str, cause: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, operation, cause.to_string()).with_backend(BACKEND)
}

fn stream_of(body: RequestBody, operation: &'static str) -> ByteStream {
    // The body is to be sent from anywhere, and is only ever polled by one.
    BodyStream::new(body)
        .filter_map(move |frame| {
            std::future::ready(match frame {
                Ok(frame) => frame.into_data().ok().map(Ok),
                Err(cause) => Some(Err(broken(operation, &cause))),
            })
        })
        .boxed()
}

fn streaming(answer: Streamed) -> Response<ResponseBody> {
    let (status, headers) = (answer.status(), answer.headers().clone());
    let mut response =
        Response::new(ResponseBody::new(StreamBody::new(answer.map(|bytes| bytes.map(Frame::data)))));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
