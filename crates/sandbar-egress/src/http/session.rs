use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use sandbar_core::{DecisionReason, Verdict};
use tokio::sync::Mutex;

use super::answer::{Answer, Body};
use super::context::{ConnectError, HttpContext, HttpEvent, Transport};
use super::forward;
use super::request::{Expected, Wanted, check, clean};
use super::upstream::{SendError, Upstream};
use super::websocket;
use crate::Ruling;

/// The requests of one connection of the sandbox, one after the other.
pub(super) struct Session {
    context: HttpContext,
    transport: Arc<dyn Transport>,
    upstream: Mutex<Upstream>,
    upgrade: Mutex<Option<OnUpgrade>>,
}

impl Session {
    pub(super) fn new(context: HttpContext, transport: Arc<dyn Transport>) -> Self {
        Self { context, transport, upstream: Mutex::default(), upgrade: Mutex::default() }
    }

    /// Judges a request, sends what is allowed, and gives the answer to it.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let expected = Expected {
            name: &self.context.name,
            port: self.context.port,
            scheme: self.transport.scheme(),
            default_port: self.transport.default_port(),
        };
        let wanted = match check(&head, expected) {
            Ok(wanted) => wanted,
            Err(flaw) => return self.denied(flaw.reason(), Some(flaw.to_string())).into_response(),
        };
        let ruling = (self.context.judge)();
        if !ruling.is_allowed() {
            return self.told(Verdict::Denied, ruling.reason, Some(&ruling), None).into_response();
        }
        let accepted = websocket::answer_to(&head.headers);
        let headers = self.transport.headers(&ruling);
        let head = match forward::request(head, wanted, &self.context.name, headers) {
            Ok(head) => head,
            Err(forward::Unknown(header)) => {
                let detail = format!("the value of the header `{header}` is not known any more");
                return self.failed(DecisionReason::Unreachable, &ruling, detail).into_response();
            }
        };
        let sent = self.upstream.lock().await.send(&*self.transport, head, body).await;
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return self.not_sent(error, &ruling).into_response(),
        };
        let upgrades = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if upgrades {
            let is_good = accepted.is_some_and(|key| websocket::is_accepted(response.headers(), &key));
            if wanted != Wanted::WebSocket || !is_good {
                let detail = "the host answered with another protocol than was asked for".to_owned();
                return self.failed(DecisionReason::Unreachable, &ruling, detail).into_response();
            }
            *self.upgrade.lock().await = Some(hyper::upgrade::on(&mut response));
        }
        self.report(Verdict::Allowed, ruling.reason, Some(&ruling), None, None);
        forward::response(response.headers_mut(), if upgrades { wanted } else { Wanted::Answer });
        response.map(Either::Left)
    }

    /// The connection outside, if it is a `websocket` now.
    pub(super) async fn upgraded(&self) -> Option<Upgraded> {
        let upgrade = self.upgrade.lock().await.take()?;
        upgrade.await.ok()
    }

    /// Tells that something was refused whatever the policy says.
    pub(super) fn denied(&self, reason: DecisionReason, detail: Option<String>) -> Answer {
        self.told(Verdict::Denied, reason, None, detail)
    }

    fn failed(&self, reason: DecisionReason, ruling: &Ruling, detail: String) -> Answer {
        self.told(Verdict::Failed, reason, Some(ruling), Some(detail))
    }

    fn not_sent(&self, error: SendError, ruling: &Ruling) -> Answer {
        match error {
            SendError::Connect(ConnectError::Dial(error)) => {
                let told = error.ruling(ruling);
                let detail = clean(&chain(&error));
                self.report(told.verdict, told.reason, Some(&told), error.address(), Some(detail));
                Answer::new(told.verdict, told.reason, &self.host(), None)
            }
            SendError::Connect(ConnectError::Tls(why)) => {
                self.failed(DecisionReason::TlsFailed, ruling, clean(&why))
            }
            SendError::Answer(error) => {
                let detail = format!("its answer can't be read: {}", clean(&chain(&error)));
                self.failed(DecisionReason::Unreachable, ruling, detail)
            }
        }
    }

    fn told(
        &self,
        verdict: Verdict,
        reason: DecisionReason,
        ruling: Option<&Ruling>,
        detail: Option<String>,
    ) -> Answer {
        let answer = Answer::new(verdict, reason, &self.host(), detail.as_deref());
        self.report(verdict, reason, ruling, None, detail);
        answer
    }

    fn report(
        &self,
        verdict: Verdict,
        reason: DecisionReason,
        ruling: Option<&Ruling>,
        address: Option<std::net::IpAddr>,
        detail: Option<String>,
    ) {
        let rule = ruling.and_then(|ruling| ruling.rule.clone());
        (self.context.report)(HttpEvent { verdict, reason, rule, address, detail });
    }

    fn host(&self) -> String {
        format!("{}:{}", self.context.name, self.context.port)
    }
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
