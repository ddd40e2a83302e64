use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use sandbar_core::{DecisionReason, HeaderInjection, Hostname, Verdict};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{DialError, Dialer, Ruling};

/// What a connection is for, and whom it asks and tells.
#[derive(Clone)]
pub struct HttpContext {
    /// The host that it was made for: the only one that its requests may name.
    pub name: Hostname,
    /// The port.
    pub port: u16,
    /// What the policy says now; asked for each request.
    pub judge: Arc<dyn Fn() -> Ruling + Send + Sync>,
    /// The way out; used when the first request was allowed.
    pub dial: Arc<dyn Dialer>,
    /// Told each decision.
    pub report: Arc<dyn Fn(HttpEvent) + Send + Sync>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpEvent {
    /// How it went.
    pub verdict: Verdict,
    /// Why.
    pub reason: DecisionReason,
    /// The rule that decided, as it is written.
    pub rule: Option<Arc<str>>,
    /// The address that it was about.
    pub address: Option<IpAddr>,
    /// What was sent instead of what was expected; clean, and short.
    pub detail: Option<String>,
}

/// A stream of bytes of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to the host outside.
pub(crate) type Link = Box<dyn Stream>;

/// How requests travel, on the side of the sandbox as on the other.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// What stands before `://` where a request names it.
    fn scheme(&self) -> &'static str;

    /// The port that a request need not name.
    fn default_port(&self) -> u16;

    /// The headers of a ruling that this transport may carry: a secret goes nowhere in clear.
    fn headers<'a>(&self, ruling: &'a Ruling) -> &'a [HeaderInjection];

    /// A new connection to the host.
    async fn connect(&self) -> Result<Link, ConnectError>;
}

/// Why there is no connection to the host.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// There is none at all.
    Dial(DialError),
    /// There is one, and no TLS on it; with whom, and why.
    Tls(String),
}

/// In clear. No header is injected.
pub(super) struct Plain(pub(super) Arc<dyn Dialer>);

#[async_trait]
impl Transport for Plain {
    fn scheme(&self) -> &'static str {
        "http"
    }

    fn default_port(&self) -> u16 {
        80
    }

    fn headers<'a>(&self, _: &'a Ruling) -> &'a [HeaderInjection] {
        &[]
    }

    async fn connect(&self) -> Result<Link, ConnectError> {
        let stream = self.0.dial().await.map_err(ConnectError::Dial)?;
        Ok(Box::new(stream))
    }
}

impl fmt::Debug for HttpContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpContext")
            .field("name", &self.name)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}
