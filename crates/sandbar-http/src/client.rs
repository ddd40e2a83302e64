use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};
use sandbar_core::{Error, ErrorKind, Result, Retry};
use tokio::time::Instant;
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::call::Call;
use crate::fault::Fault;
use crate::pace::TooFar;
use crate::redact::Redactor;
use crate::retry::{Ended, Standing};
use crate::upload::Body;
use crate::{Config, Idempotency, Proxy, Request, Response, Secret, Streamed, env, tls, url};

/// How long a connection that nobody uses is kept: well below what servers and load balancers do, since a request on one that is just being
/// closed has an unknown outcome.
const KEEP_IDLE: Duration = Duration::from_secs(20);

/// How often a connection that is waited on is asked whether it is still there, and how long the answer may take.
const PROBE: Duration = Duration::from_secs(20);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Hosts of this machine, which no proxy is asked for.
const THIS_MACHINE: &str = "localhost,127.0.0.0/8,::1";

/// Sends requests. A clone shares the connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    http: reqwest::Client,
    config: Config,
    redactor: Redactor,
}

impl Client {
    /// A client; nothing is connected yet.
    pub fn new(config: Config) -> Result<Self> {
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::settings(&config)?)
            // A redirection would take the key along to wherever it leads.
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(config.connect_timeout)
            .pool_idle_timeout(KEEP_IDLE)
            .tcp_keepalive(PROBE)
            .http2_keep_alive_interval(PROBE)
            .http2_keep_alive_timeout(PROBE)
            .no_proxy();
        if config.http1_only {
            builder = builder.http1_only();
        }
        if let Some(proxy) = proxy(&config)? {
            builder = builder.proxy(proxy);
        }
        let http = builder.build().map_err(|error| {
            Error::new(ErrorKind::Config, "configure", format!("no HTTP client can be made: {error}"))
                .with_backend(config.backend)
        })?;
        let redactor = Redactor::new(&config.secrets);
        Ok(Self(Arc::new(Inner { http, config, redactor })))
    }

    /// Sends a request and reads the whole answer, whatever its status. An error says that there is no answer, and whether the request may be sent
    /// again.
    ///
    /// Dropping the future gives up: the connection is closed, or with HTTP/2 the request is reset. The server may have acted on it.
    pub async fn send(&self, request: Request) -> Result<Response> {
        self.run(request).await
    }

    /// Sends a request and hands out the answer when its head is there, whatever its status; otherwise as [`Client::send`].
    pub async fn open(&self, request: Request) -> Result<Streamed> {
        self.run(request).await
    }

    async fn run<T: Answered>(&self, mut request: Request) -> Result<T> {
        let call = Arc::new(self.call(&mut request)?);
        let headers = self.headers(&request, &call)?;
        let policy = request.retry.as_ref().unwrap_or(&self.0.config.retry);
        let began = Instant::now();
        let mut attempts = 0;
        loop {
            self.turn(&request, &call).await?;
            attempts += 1;
            let ended = T::of(Attempt {
                http: &self.0.http,
                call: &call,
                headers: &headers,
                body: &request.body,
                timeout: request.timeout,
                idle_timeout: request.idle_timeout,
                body_limit: request.body_limit,
                number: attempts,
            })
            .await;
            let standing = Standing {
                attempts,
                elapsed: began.elapsed(),
                may_repeat: call.may_repeat,
                can_repeat: match &request.body {
                    Body::Empty | Body::Bytes(_) => true,
                    Body::Stream(source) => source.is_untouched(),
                },
                now: SystemTime::now(),
            };
            self.mind(&request, &ended);
            let pause = policy.pause(&how(&ended), &standing, fastrand::f64());
            let Some(pause) = pause else { return ended.map_err(|fault| fault.into_error(&call)) };
            let why = match &ended {
                Ok(answer) => answer.head().0.as_str().to_owned(),
                Err(fault) => call.redactor.text(fault.message()),
            };
            tracing::warn!(
                operation = call.operation,
                request = call.id,
                attempts,
                ?pause,
                why,
                "trying again"
            );
            // A connection is held no longer than it is of use.
            drop(ended);
            tokio::time::sleep(pause).await;
        }
    }

    fn call(&self, request: &mut Request) -> Result<Call> {
        let config = &self.0.config;
        let own = |error: Error| error.with_backend(config.backend);
        request.take_fault().map_err(own)?;
        Ok(Call {
            operation: request.operation,
            backend: config.backend,
            resource: request.resource.take(),
            method: request.method.clone(),
            url: url::parse(request.operation, &request.url).map_err(own)?,
            id: Uuid::new_v4().to_string(),
            may_repeat: request.idempotency.may_repeat(),
            is_harmless: request.idempotency == Idempotency::Safe,
            redactor: self.0.redactor.with(&request.secrets),
        })
    }

    fn headers(&self, request: &Request, call: &Call) -> Result<HeaderMap> {
        let mut headers = self.0.config.headers.clone();
        for (name, value) in &request.headers {
            headers.insert(name.clone(), value.clone());
        }
        let id = |value: &str| {
            HeaderValue::from_str(value)
                .map_err(|_| call.error(ErrorKind::InvalidInput, "the idempotency key can't be a header"))
        };
        headers.insert(REQUEST_ID, id(&call.id)?);
        if let Idempotency::Keyed(key) = &request.idempotency {
            headers.insert(IDEMPOTENCY_KEY, id(key)?);
        }
        Ok(headers)
    }

    async fn turn(&self, request: &Request, call: &Call) -> Result<()> {
        self.0.config.pacer.turn(&request.paces).await.map_err(|TooFar { key, wait, longest }| {
            let message = format!(
                "too much is asked of the server: the turn of `{key}` would come in {wait:.1?}, and calls wait {longest:?} at most"
            );
            call.error(ErrorKind::LimitExceeded, &message).with_retry(Retry::After(wait))
        })
    }

    /// Whoever else keeps the same pace need not be sent away as well.
    fn mind<T: Answered>(&self, request: &Request, ended: &Result<T, Fault>) {
        let Some((StatusCode::TOO_MANY_REQUESTS, headers)) = ended.as_ref().ok().map(Answered::head) else {
            return;
        };
        let wait = crate::retry_after::retry_after(headers, SystemTime::now());
        if let (Some(wait), Some(pace)) = (wait, request.paces.first()) {
            self.0.config.pacer.hold(pace, wait);
        }
    }
}

/// What both kinds of answers have.
trait Answered: Sized {
    async fn of(attempt: Attempt<'_>) -> Result<Self, Fault>;

    fn head(&self) -> (StatusCode, &HeaderMap);
}

impl Answered for Response {
    async fn of(attempt: Attempt<'_>) -> Result<Self, Fault> {
        attempt.whole().await
    }

    fn head(&self) -> (StatusCode, &HeaderMap) {
        (self.status, &self.headers)
    }
}

impl Answered for Streamed {
    async fn of(attempt: Attempt<'_>) -> Result<Self, Fault> {
        attempt.opened().await
    }

    fn head(&self) -> (StatusCode, &HeaderMap) {
        (self.status, &self.headers)
    }
}

fn how<T: Answered>(ended: &Result<T, Fault>) -> Ended<'_> {
    match ended {
        Err(fault) => fault.ended(),
        Ok(answer) => {
            let (status, headers) = answer.head();
            Ended::Answered(status, headers)
        }
    }
}

fn proxy(config: &Config) -> Result<Option<reqwest::Proxy>> {
    let (address, but) = match &config.proxy {
        Proxy::Direct => return Ok(None),
        Proxy::At(address) => (Some(address.clone()), None),
        Proxy::Environment => (env::https_proxy().map(Secret::from), env::no_proxy()),
    };
    let Some(address) = address else { return Ok(None) };
    let proxy = reqwest::Proxy::https(address.expose()).map_err(|_| {
        // The address itself may have credentials in it.
        Error::new(ErrorKind::Config, "configure", "the address of the proxy for `https` can't be used")
            .with_backend(config.backend)
            .with_hint("look at `HTTPS_PROXY` or `ALL_PROXY`: such as `http://proxy.example.com:3128`")
    })?;
    let but = but.map_or_else(|| THIS_MACHINE.to_owned(), |but| format!("{THIS_MACHINE},{but}"));
    Ok(Some(proxy.no_proxy(reqwest::NoProxy::from_string(&but))))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("backend", &self.0.config.backend).finish_non_exhaustive()
    }
}
