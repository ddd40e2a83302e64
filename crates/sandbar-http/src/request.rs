use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use sandbar_core::{ByteStream, Error, Result};
use serde::Serialize;

use crate::upload::Body;
use crate::{DEFAULT_BODY_LIMIT, Idempotency, Pace, RetryPolicy, Secret};

/// How long an answer may take by default, as the official clients of the field have it.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a stream may be silent by default: longer than the 50 s after which a guest says that it is still there.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// One call: what is asked, and how.
///
/// What is wrong with it is said when it is sent.
pub struct Request {
    pub(crate) operation: &'static str,
    pub(crate) resource: Option<String>,
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) idempotency: Idempotency,
    pub(crate) timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) body_limit: usize,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) paces: Vec<Pace>,
    pub(crate) broken: Option<Error>,
}

impl Request {
    /// A call in `operation`, which errors name.
    pub fn new(operation: &'static str, method: Method, url: impl Into<String>) -> Self {
        Self {
            operation,
            resource: None,
            idempotency: Idempotency::of(&method),
            method,
            url: url.into(),
            headers: HeaderMap::new(),
            body: Body::Empty,
            secrets: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            body_limit: DEFAULT_BODY_LIMIT,
            retry: None,
            paces: Vec::new(),
            broken: None,
        }
    }

    /// A `GET`.
    pub fn get(operation: &'static str, url: impl Into<String>) -> Self {
        Self::new(operation, Method::GET, url)
    }

    /// A `POST`.
    pub fn post(operation: &'static str, url: impl Into<String>) -> Self {
        Self::new(operation, Method::POST, url)
    }

    /// A `PUT`.
    pub fn put(operation: &'static str, url: impl Into<String>) -> Self {
        Self::new(operation, Method::PUT, url)
    }

    /// A `PATCH`.
    pub fn patch(operation: &'static str, url: impl Into<String>) -> Self {
        Self::new(operation, Method::PATCH, url)
    }

    /// A `DELETE`.
    pub fn delete(operation: &'static str, url: impl Into<String>) -> Self {
        Self::new(operation, Method::DELETE, url)
    }

    /// Names what the call is about, for errors.
    pub fn with_resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Adds a header. One of the same name is replaced, also one of the client's own.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.insert(name, value, false);
        self
    }

    /// Adds a header whose value is a credential.
    pub fn with_secret_header(mut self, name: &str, value: &Secret) -> Self {
        self.insert(name, value.expose(), true);
        self.secrets.push(value.clone());
        self
    }

    /// Names a credential that is elsewhere in the call, such as in its body or its address, so that nothing shows it.
    pub fn with_secret(mut self, secret: &Secret) -> Self {
        self.secrets.push(secret.clone());
        self
    }

    /// Sends `body` as JSON.
    pub fn with_json(mut self, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(json) => {
                self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                self.with_bytes(json)
            }
            Err(error) => {
                self.broken = Some(Error::invalid(self.operation, format!("the body is no JSON: {error}")));
                self
            }
        }
    }

    /// Sends these bytes; their type is a header.
    pub fn with_bytes(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Body::Bytes(body.into());
        self
    }

    /// Sends what the stream yields, as it comes. With a length it is announced, and the stream has to yield exactly as much.
    ///
    /// It can be sent once: after the first of it was asked for, the call isn't repeated whatever its idempotency. The call's timeout counts from
    /// the last of it that was taken. An error of the stream is the call's error.
    pub fn with_stream(mut self, body: ByteStream, length: Option<u64>) -> Self {
        self.body = Body::stream(body, length);
        self
    }

    /// Says whether it may reach the server twice. By default the method does ([`Idempotency::of`]).
    pub fn with_idempotency(mut self, idempotency: Idempotency) -> Self {
        self.idempotency = idempotency;
        self
    }

    /// How long one attempt may take: with [`Client::send`](crate::Client::send) to the end of the answer, with
    /// [`Client::open`](crate::Client::open) to its head. Waiting for one's turn does not count. Default 60 s.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long a stream that was opened may be silent while it is read. Default 90 s.
    pub fn with_idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Most bytes of the answer's body that are held. Default [`DEFAULT_BODY_LIMIT`].
    pub fn with_body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Another policy of trying again than the client's.
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Waits for its turn at this pace before each attempt; several hold together.
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.paces.push(pace);
        self
    }

    fn insert(&mut self, name: &str, value: &str, is_secret: bool) {
        let header = HeaderName::try_from(name).ok().zip(HeaderValue::from_str(value).ok());
        let Some((name, mut value)) = header else {
            let message = format!("the value of the header `{name}` has bytes that no header can carry");
            self.broken = Some(Error::invalid(self.operation, message));
            return;
        };
        value.set_sensitive(is_secret);
        self.headers.insert(name, value);
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = reqwest::Url::parse(&self.url).map(|url| crate::url::shown(&url));
        f.debug_struct("Request")
            .field("operation", &self.operation)
            .field("method", &self.method)
            .field("url", &url.as_deref().unwrap_or("no URL"))
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("body", &self.body)
            .field("idempotency", &self.idempotency)
            .finish_non_exhaustive()
    }
}

impl Request {
    pub(crate) fn take_fault(&mut self) -> Result<()> {
        self.broken.take().map_or(Ok(()), Err)
    }
}
