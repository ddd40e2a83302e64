use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue};
use sandbar_core::{Error, Result};

use crate::{Pacer, RetryPolicy, Secret};

/// How long a connection may take to come about by default, names and TLS included.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a [`Client`](crate::Client) is like.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) backend: &'static str,
    pub(crate) headers: HeaderMap,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) retry: RetryPolicy,
    pub(crate) pacer: Pacer,
    pub(crate) proxy: Proxy,
    pub(crate) roots: Vec<Vec<u8>>,
    pub(crate) connect_timeout: Duration,
    pub(crate) http1_only: bool,
}

/// Through what `https` addresses are reached. `http` ones are always reached directly: those are servers of one's own, and a proxy on the
/// way would read the key.
#[derive(Clone, Debug, Default)]
pub enum Proxy {
    /// What `HTTPS_PROXY` or `ALL_PROXY` names, in either case, but for the hosts in `NO_PROXY` and this machine.
    #[default]
    Environment,
    /// None.
    Direct,
    /// This one, which may have credentials in it, but for this machine.
    At(Secret),
}

impl Config {
    /// The client of a backend, which errors name.
    pub fn new(backend: &'static str) -> Self {
        let agent = concat!("sandbar/", env!("CARGO_PKG_VERSION"));
        Self {
            backend,
            headers: HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))]),
            secrets: Vec::new(),
            retry: RetryPolicy::default(),
            pacer: Pacer::default(),
            proxy: Proxy::default(),
            roots: Vec::new(),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            http1_only: false,
        }
    }

    /// A header of every request, such as another `User-Agent`.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self> {
        self.insert(name, value, false)?;
        Ok(self)
    }

    /// A header of every request whose value is a credential.
    pub fn with_secret_header(mut self, name: &str, value: &Secret) -> Result<Self> {
        self.insert(name, value.expose(), true)?;
        self.secrets.push(value.clone());
        Ok(self)
    }

    /// Names a credential that nothing may show.
    pub fn with_secret(mut self, secret: &Secret) -> Self {
        self.secrets.push(secret.clone());
        self
    }

    /// What is tried again, unless a request says otherwise.
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Shares a pacer with other clients of the same account.
    pub fn with_pacer(mut self, pacer: Pacer) -> Self {
        self.pacer = pacer;
        self
    }

    /// Through what `https` addresses are reached.
    pub fn with_proxy(mut self, proxy: Proxy) -> Self {
        self.proxy = proxy;
        self
    }

    /// Trusts these certificates (PEM) as well as the system's, for a server of one's own.
    pub fn with_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots.push(pem.into());
        self
    }

    /// How long a connection may take to come about. Default 10 s.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// A connection of its own for each request at a time instead of one for all: for bodies that would slow one another down.
    pub fn with_http1_only(mut self) -> Self {
        self.http1_only = true;
        self
    }

    fn insert(&mut self, name: &str, value: &str, is_secret: bool) -> Result<()> {
        let header = HeaderName::try_from(name).ok().zip(HeaderValue::from_str(value).ok());
        let Some((name, mut value)) = header else {
            let message =
                format!("what was given for the header `{name}` has characters that no header can carry");
            return Err(Error::new(sandbar_core::ErrorKind::Config, "configure", message)
                .with_backend(self.backend)
                .with_hint("look for a line break or another invisible character at its end"));
        };
        value.set_sensitive(is_secret);
        self.headers.insert(name, value);
        Ok(())
    }
}
