use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use sandbar_core::{ErrorKind, Result, UserName};
use sandbar_wire::envd::{
    KEEPALIVE_HEADER, RpcError, STREAM_CONTENT_TYPE, TIMEOUT_HEADER, UNARY_CONTENT_TYPE, message_frame,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::body::{RequestBody, ResponseBody, whole};
use crate::client::{Dialect, GuestClient};
use crate::fault;
use crate::messages::{Messages, Next};
use crate::operation::Operation;
use crate::transport::{Failure, Reuse};

/// How long an answer to a plain call may take: what the official SDKs allow.
pub const CALL: Duration = Duration::from_secs(60);
/// How often an agent far away is asked to say something on a stream on which nothing happens: the official SDKs' own.
const KEEPALIVE: Duration = Duration::from_secs(50);
/// After which silence such a stream counts as lost: one word may be late, and the next is not.
const SILENCE: Duration = Duration::from_secs(120);
/// Largest answer to a plain call, in bytes: a listing of about 200,000 files.
const MAX_ANSWER: usize = 64 << 20;

/// Builds a request to the agent.
pub fn request(
    method: Method,
    path: &str,
    user: Option<&UserName>,
    headers: &[(&str, &str)],
    body: RequestBody,
    operation: Operation,
) -> Result<Request<RequestBody>> {
    let mut builder = Request::builder().method(method).uri(path);
    if let Some(user) = user {
        builder = builder.header(AUTHORIZATION, basic(user));
    }
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body).map_err(|cause| operation.fail(ErrorKind::Unexpected, cause.to_string()))
}

/// The user's name as the agent wants it: basic authentication without a password.
fn basic(user: &UserName) -> String {
    use base64::Engine;
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:")))
}

impl GuestClient {
    /// Sends a request to the agent, and waits at most `bound` for the head of its answer.
    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
        bound: Duration,
        operation: Operation,
    ) -> Result<Response<ResponseBody>> {
        self.transport.send(request, Reuse::Yes, bound, operation.name).await
    }

    /// A plain call. The outer result is about the call, the inner one is the agent's answer.
    pub(crate) async fn call<A: DeserializeOwned>(
        &self,
        method: &str,
        message: &impl Serialize,
        user: Option<&UserName>,
        operation: Operation,
    ) -> Result<std::result::Result<A, RpcError>> {
        let text = serde_json::to_vec(message)
            .map_err(|cause| operation.fail(ErrorKind::Unexpected, cause.to_string()))?;
        let headers = [(CONTENT_TYPE.as_str(), UNARY_CONTENT_TYPE)];
        let request = request(Method::POST, method, user, &headers, whole(text), operation)?;
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
    pub(crate) async fn collect(&self, body: ResponseBody, operation: Operation) -> Result<Vec<u8>> {
        match timeout(CALL, body.collect(MAX_ANSWER)).await {
            Ok(Ok(Some(bytes))) => Ok(bytes),
            Ok(Ok(None)) => {
                let message = format!("the agent's answer is larger than {MAX_ANSWER} bytes");
                Err(operation.fail(ErrorKind::LimitExceeded, message))
            }
            Ok(Err(cause)) => Err(self.lost(operation, Failure::Broken(cause)).await),
            Err(_) => {
                let why = format!("the agent's answer did not end within {} s", CALL.as_secs());
                Err(self.unknown(operation, why))
            }
        }
    }

    /// The first message of a stream, which comes as soon as what it is about has begun.
    pub(crate) async fn first_of(&self, messages: &mut Messages, operation: Operation) -> Result<Next> {
        timeout(CALL, messages.next()).await.map_err(|_| {
            let why = format!("the agent's first message did not come within {} s", CALL.as_secs());
            self.unknown(operation, why)
        })
    }

    /// Opens a stream of messages. The agent ends it after `limit`, if there is one.
    pub(crate) async fn open_stream(
        &self,
        method: &str,
        message: &impl Serialize,
        user: Option<&UserName>,
        limit: Option<Duration>,
        operation: Operation,
    ) -> Result<std::result::Result<Messages, RpcError>> {
        let limit = limit.map(|limit| limit.as_millis().max(1).to_string());
        let mut headers = vec![(CONTENT_TYPE.as_str(), STREAM_CONTENT_TYPE)];
        if let Some(limit) = &limit {
            headers.push((TIMEOUT_HEADER, limit));
        }
        let keepalive = KEEPALIVE.as_secs().to_string();
        if self.dialect == Dialect::Envd {
            headers.push((KEEPALIVE_HEADER, &keepalive));
        }
        let request =
            request(Method::POST, method, user, &headers, whole(message_frame(message)), operation)?;
        let response = self.send(request, CALL, operation).await?;
        self.messages_of(response, operation).await
    }

    /// A call with a stream of messages for its question, and one for its answer, which comes within `bound`.
    pub(crate) async fn pour(
        &self,
        method: &str,
        body: RequestBody,
        bound: Duration,
        operation: Operation,
    ) -> Result<std::result::Result<Messages, RpcError>> {
        let headers = [(CONTENT_TYPE.as_str(), STREAM_CONTENT_TYPE)];
        let request = request(Method::POST, method, None, &headers, body, operation)?;
        let response = self.transport.send(request, Reuse::No, bound, operation.name).await?;
        self.messages_of(response, operation).await
    }

    async fn messages_of(
        &self,
        response: Response<ResponseBody>,
        operation: Operation,
    ) -> Result<std::result::Result<Messages, RpcError>> {
        let status = response.status();
        if status != StatusCode::OK {
            let body = self.collect(response.into_body(), operation).await?;
            return Ok(Err(RpcError::from_response(status.as_u16(), &body)));
        }
        let messages = Messages::of(response.into_body());
        Ok(Ok(match self.dialect {
            Dialect::Own => messages,
            Dialect::Envd => messages.never_silent_for(SILENCE),
        }))
    }
}
