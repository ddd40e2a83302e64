use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use sandbar_core::{ErrorKind, Result, UserName};
use sandbar_wire::envd::{
    EndStream, Frame, FrameDecoder, RpcError, STREAM_CONTENT_TYPE, TIMEOUT_HEADER, UNARY_CONTENT_TYPE,
    message_frame,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::body::{RequestBody, ResponseBody, whole};
use super::fault;
use super::link::Link;
use super::pool::{Failure, Reuse};
use crate::error::{fail, held, unknown};

/// How long an answer to a plain call may take: what the official SDKs allow.
pub(super) const CALL: Duration = Duration::from_secs(60);
/// How long a stream may go on after its last message, which ends it.
const LAST: Duration = Duration::from_secs(2);
/// Largest answer to a plain call, in bytes: a listing of about 200,000 files.
const MAX_ANSWER: usize = 64 << 20;
/// Largest message of a stream, in bytes: output comes in pieces of at most 64 KiB, which base64 makes longer, and an agent that sends more is
/// not ours.
const MAX_MESSAGE: usize = 4 << 20;

/// Builds a request to the agent.
pub(super) fn request(
    method: Method,
    path: &str,
    user: Option<&UserName>,
    headers: &[(&str, &str)],
    body: RequestBody,
) -> Result<Request<RequestBody>> {
    let mut builder = Request::builder().method(method).uri(path).header(HOST, "sandbar");
    if let Some(user) = user {
        builder = builder.header(AUTHORIZATION, basic(user));
    }
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body).map_err(|cause| fail(ErrorKind::Unexpected, "ask the agent", cause.to_string()))
}

/// The user's name as the agent wants it: basic authentication without a password.
fn basic(user: &UserName) -> String {
    use base64::Engine;
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:")))
}

impl Link {
    /// Sends a request to the agent of the running sandbox, and waits at most `bound` for the head of its answer.
    pub(super) async fn send(
        &self,
        request: Request<RequestBody>,
        bound: Duration,
        operation: &'static str,
    ) -> Result<Response<ResponseBody>> {
        self.send_by(Reuse::Yes, request, bound, operation).await
    }

    async fn send_by(
        &self,
        reuse: Reuse,
        request: Request<RequestBody>,
        bound: Duration,
        operation: &'static str,
    ) -> Result<Response<ResponseBody>> {
        let folder = self.moving(operation).await?;
        match timeout(bound, self.pool.send(&folder, request, reuse)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(failure)) => Err(self.lost(operation, failure).await),
            // The copy began after the look.
            Err(_) if self.is_held(operation) => {
                Err(held(operation, self.id().as_str(), sandbar_core::State::Running, bound)
                    .with_hint("what was asked for may be done once it goes on")
                    .with_retry(sandbar_core::Retry::OutcomeUnknown))
            }
            Err(_) => {
                let why = format!("the agent did not answer within {} s", bound.as_secs());
                Err(unknown(operation, self.id().as_str(), why)
                    .with_retry(sandbar_core::Retry::OutcomeUnknown))
            }
        }
    }

    /// A plain call. The outer result is about the call, the inner one is the agent's answer.
    pub(super) async fn call<A: DeserializeOwned>(
        &self,
        method: &str,
        message: &impl Serialize,
        user: Option<&UserName>,
        operation: &'static str,
    ) -> Result<std::result::Result<A, RpcError>> {
        let text = serde_json::to_vec(message)
            .map_err(|cause| fail(ErrorKind::Unexpected, operation, cause.to_string()))?;
        let headers = [(CONTENT_TYPE.as_str(), UNARY_CONTENT_TYPE)];
        let request = request(Method::POST, method, user, &headers, whole(text))?;
        let response = self.send(request, CALL, operation).await?;
        let status = response.status();
        let body = self.collect(response.into_body(), operation).await?;
        if status == StatusCode::OK {
            let answer = serde_json::from_slice(&body).map_err(|cause| fault::nonsense(operation, &cause))?;
            Ok(Ok(answer))
        } else {
            Ok(Err(RpcError::from_response(status.as_u16(), &body)))
        }
    }

    /// Reads a whole answer.
    pub(super) async fn collect(&self, body: ResponseBody, operation: &'static str) -> Result<Vec<u8>> {
        match timeout(CALL, body.collect(MAX_ANSWER)).await {
            Ok(Ok(Some(bytes))) => Ok(bytes),
            Ok(Ok(None)) => {
                let message = format!("the agent's answer is larger than {MAX_ANSWER} bytes");
                Err(fail(ErrorKind::LimitExceeded, operation, message))
            }
            Ok(Err(cause)) => Err(self.lost(operation, Failure::Broken(cause)).await),
            Err(_) => {
                let why = format!("the agent's answer did not end within {} s", CALL.as_secs());
                Err(unknown(operation, self.id().as_str(), why)
                    .with_retry(sandbar_core::Retry::OutcomeUnknown))
            }
        }
    }

    /// The first message of a stream, which comes as soon as what it is about has begun.
    pub(super) async fn first_of(&self, messages: &mut Messages, operation: &'static str) -> Result<Next> {
        timeout(CALL, messages.next()).await.map_err(|_| {
            let why = format!("the agent's first message did not come within {} s", CALL.as_secs());
            unknown(operation, self.id().as_str(), why).with_retry(sandbar_core::Retry::OutcomeUnknown)
        })
    }

    /// Opens a stream of messages. The agent ends it after `limit`, if there is one.
    pub(super) async fn open_stream(
        &self,
        method: &str,
        message: &impl Serialize,
        user: Option<&UserName>,
        limit: Option<Duration>,
        operation: &'static str,
    ) -> Result<std::result::Result<Messages, RpcError>> {
        let limit = limit.map(|limit| limit.as_millis().max(1).to_string());
        let mut headers = vec![(CONTENT_TYPE.as_str(), STREAM_CONTENT_TYPE)];
        if let Some(limit) = &limit {
            headers.push((TIMEOUT_HEADER, limit));
        }
        let request = request(Method::POST, method, user, &headers, whole(message_frame(message)))?;
        let response = self.send(request, CALL, operation).await?;
        self.messages_of(response, operation).await
    }

    /// A call with a stream of messages for its question, and one for its answer, which comes within `bound`.
    pub(super) async fn pour(
        &self,
        method: &str,
        body: RequestBody,
        bound: Duration,
        operation: &'static str,
    ) -> Result<std::result::Result<Messages, RpcError>> {
        let headers = [(CONTENT_TYPE.as_str(), STREAM_CONTENT_TYPE)];
        let request = request(Method::POST, method, None, &headers, body)?;
        let response = self.send_by(Reuse::No, request, bound, operation).await?;
        self.messages_of(response, operation).await
    }

    async fn messages_of(
        &self,
        response: Response<ResponseBody>,
        operation: &'static str,
    ) -> Result<std::result::Result<Messages, RpcError>> {
        let status = response.status();
        if status != StatusCode::OK {
            let body = self.collect(response.into_body(), operation).await?;
            return Ok(Err(RpcError::from_response(status.as_u16(), &body)));
        }
        Ok(Ok(Messages::of(response.into_body())))
    }
}

/// The messages of a stream.
#[derive(Debug)]
pub(super) struct Messages {
    body: ResponseBody,
    decoder: FrameDecoder,
    ended: bool,
}

/// What comes next in a stream.
#[derive(Debug)]
pub(super) enum Next {
    /// A message.
    Message(Bytes),
    /// The proper end.
    End(Option<RpcError>),
    /// The connection broke.
    Lost(Failure),
    /// It ended without an end, or is not of the protocol.
    Nonsense(String),
}

impl Messages {
    /// Those of an answer's body.
    pub(super) fn of(body: ResponseBody) -> Self {
        Self { body, decoder: FrameDecoder::new(MAX_MESSAGE), ended: false }
    }

    /// The next message or the end.
    pub(super) async fn next(&mut self) -> Next {
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) if frame.is_end() => return self.end(&frame).await,
                Ok(Some(frame)) => return Next::Message(frame.payload),
                Ok(None) => {}
                Err(cause) => return Next::Nonsense(cause.to_string()),
            }
            if self.ended {
                return Next::Nonsense("the agent's stream ended without its last message".into());
            }
            match self.body.chunk().await {
                Some(Ok(bytes)) => self.decoder.push(&bytes),
                Some(Err(cause)) => return Next::Lost(Failure::Broken(cause)),
                None => self.ended = true,
            }
        }
    }

    /// Takes the last message, and reads the answer to its end so that its connection can be used again.
    async fn end(&mut self, frame: &Frame) -> Next {
        let rest = async { while let Some(Ok(_)) = self.body.chunk().await {} };
        if timeout(LAST, rest).await.is_err() {
            return Next::Nonsense("the agent's stream goes on after its last message".into());
        }
        match serde_json::from_slice::<EndStream>(&frame.payload) {
            Ok(end) => Next::End(end.error),
            Err(cause) => Next::Nonsense(cause.to_string()),
        }
    }
}
