use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use sandbar_core::{Decision, DecisionKind, DecisionReason, Destination, Hostname, Protocol, Verdict};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::control_page;
use super::parting::part;
use crate::buffers;
use crate::connect::Way;
use crate::control::GATEWAY_ADDRESS;
use crate::dial::{DialError, Dialer};
use crate::event::{decision, ruled};
use crate::flows::{Flow, Reading};
use crate::gateway::Interception;
use crate::guest::{Guest, reset};
use crate::http::{self, HttpContext, HttpEvent};
use crate::intercept;
use crate::peek::{self, Alert, PeekError};
use crate::relay::relay;
use crate::ruling::Ruling;
use crate::state::State;

/// Ports where what is said is looked at, for a host by name.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// A connection, from its start to its end.
pub(super) async fn serve(state: Arc<State>, stream: TcpStream) {
    let denied = |reason| Ruling::denied(reason, None);
    let Ok(to) = state.seams.origin.of(&stream) else {
        // Nothing was translated: it was for the gateway itself.
        state.recorder.tell(decision(DecisionKind::Tcp, Verdict::Denied, DecisionReason::GatewayItself));
        return reset(&stream);
    };
    let (address, port) = (*to.ip(), to.port());
    let destination = state.names.destination(address);
    let refuse = |reason, detail: Option<&str>| {
        let asked = destination.clone().unwrap_or(Destination::Address(address.into()));
        let told = ruled(DecisionKind::Tcp, &denied(reason), &asked, port);
        state.recorder.tell(Decision { detail: detail.map(ToOwned::to_owned), ..told });
        reset(&stream);
    };
    if address == GATEWAY_ADDRESS {
        return refuse(DecisionReason::GatewayItself, None);
    }
    if !state.may_begin() {
        return refuse(DecisionReason::Limit, Some("connections per second"));
    }
    let Some(flow) = state.flows.begin(Protocol::Tcp, state.limits.connections) else {
        return refuse(DecisionReason::Limit, Some("open connections"));
    };
    let Some(destination) = &destination else {
        return refuse(DecisionReason::NotAllowed, Some("the address stands for no name"));
    };
    flow.track().set_destination(destination, port);
    buffers::bound(&stream, state.flows.count());
    let destination = destination.clone();
    let guest = Guest::new(stream, flow.track().clone(), state.recorder.clone(), state.limits.bytes_out);
    Conversation { state, flow, destination, port }.run(guest).await;
}

/// A connection whose destination is known.
struct Conversation {
    state: Arc<State>,
    flow: Flow,
    destination: Destination,
    port: u16,
}

/// How it ended: refused, which was told, or over.
enum End {
    Refused,
    Over,
}

impl Conversation {
    async fn run(self, guest: Guest) {
        // The connection is closed when this block ends, whichever way, and only then is the flow over.
        let (ended, detail) = {
            let track = self.flow.track();
            tokio::select! {
                biased;
                reason = track.when_cut() => (Some(reason), None),
                end = self.converse(guest) => match end {
                    End::Refused => (track.is_cut(), None),
                    End::Over => (Some(track.is_cut().unwrap_or(DecisionReason::Finished)), None),
                },
                () = track.when_idle(self.state.limits.tcp_idle) => (Some(DecisionReason::Finished), Some("idle")),
            }
        };
        let Some(reason) = ended else { return };
        let (out, into) = self.flow.track().bytes();
        let closed = Ruling { verdict: Verdict::Closed, ..Ruling::allowed(reason, None) };
        let told = ruled(DecisionKind::Tcp, &closed, &self.destination, self.port);
        self.state.recorder.tell(Decision {
            address: told.address.or(self.flow.track().last_address()),
            bytes_out: Some(out),
            bytes_in: Some(into),
            detail: detail.map(ToOwned::to_owned),
            ..told
        });
    }

    async fn converse(&self, guest: Guest) -> End {
        let ruling = self.ruling();
        match (&self.destination, ruling.reason, self.port) {
            (_, DecisionReason::Control, _) => {
                self.tell(&ruling, None, None);
                over(control_page::serve(guest, self.deadline()).await)
            }
            (Destination::Name(name), DecisionReason::Rule, HTTP) => self.http(guest, name, &ruling).await,
            (Destination::Name(name), DecisionReason::Rule, HTTPS) => self.https(guest, name, &ruling).await,
            (Destination::Name(name), _, HTTP) if !ruling.is_allowed() => {
                // It is read only to say why.
                self.http(guest, name, &ruling).await
            }
            (Destination::Name(_), _, HTTPS) if !ruling.is_allowed() => {
                self.tell(&ruling, None, None);
                part(guest, &Alert::DENIED.record()).await;
                End::Refused
            }
            _ if !ruling.is_allowed() => {
                self.tell(&ruling, None, None);
                guest.reset();
                End::Refused
            }
            _ => self.pass(guest, &[], &ruling).await,
        }
    }

    /// Passes everything on, unread.
    async fn pass(&self, guest: Guest, read: &[u8], ruling: &Ruling) -> End {
        match self.way().dial().await {
            Ok(outside) => {
                self.tell(ruling, None, None);
                relay(guest, read, outside, buffers::piece(self.state.flows.count())).await;
                End::Over
            }
            Err(error) => {
                self.tell_failed(ruling, &error);
                // Who has said hello understands an alert, which says more than a reset.
                match error.verdict() {
                    _ if read.is_empty() => guest.reset(),
                    Verdict::Denied => part(guest, &Alert::DENIED.record()).await,
                    _ => part(guest, &Alert::UNREACHABLE.record()).await,
                }
                End::Refused
            }
        }
    }

    async fn https(&self, mut guest: Guest, name: &Hostname, ruling: &Ruling) -> End {
        if ruling.inject.is_some() {
            self.flow.track().set_reading(Reading::Intercepted);
        }
        let hello = peek::hello(&mut guest, self.deadline(), self.state.limits.hello_bytes).await;
        let flaw = match hello {
            Ok((hello, read)) => match hello.check(name) {
                Ok(()) if ruling.inject.is_some() => {
                    return self.intercepted(guest, read, name, ruling).await;
                }
                Ok(()) => return self.pass(guest, &read, ruling).await,
                Err(flaw) => flaw,
            },
            Err(PeekError::Flaw(flaw)) => flaw,
            Err(PeekError::TooSlow) => {
                self.tell(&Ruling::denied(DecisionReason::TooSlow, ruling.rule.clone()), None, None);
                guest.reset();
                return End::Refused;
            }
            // Nobody is there to be refused.
            Err(PeekError::Closed | PeekError::Broken(_)) => return End::Over,
        };
        self.tell(&Ruling::denied(flaw.reason(), ruling.rule.clone()), Some(flaw.to_string()), None);
        part(guest, &Alert::of(flaw).record()).await;
        End::Refused
    }

    async fn http(&self, guest: Guest, name: &Hostname, ruling: &Ruling) -> End {
        self.flow.track().set_reading(Reading::Requests);
        if ruling.is_allowed() {
            self.tell(ruling, None, None);
        }
        let result = http::serve(guest, self.http_context(name)).await;
        if ruling.is_allowed() { over(result) } else { End::Refused }
    }

    /// Reads the requests in TLS. Where that can't be done, nothing passes: the rule asks for it.
    async fn intercepted(&self, guest: Guest, read: BytesMut, name: &Hostname, ruling: &Ruling) -> End {
        let Some(Interception { authority, trust }) = &self.state.interception else {
            let denied = Ruling::denied(DecisionReason::NotAllowed, ruling.rule.clone());
            self.tell(&denied, Some("this gateway has no certificate authority".to_owned()), None);
            part(guest, &Alert::DENIED.record()).await;
            return End::Refused;
        };
        self.tell(ruling, None, None);
        over(intercept::serve(guest, read, authority, trust, self.http_context(name)).await)
    }

    fn http_context(&self, name: &Hostname) -> HttpContext {
        let (state, destination, port) = (self.state.clone(), self.destination.clone(), self.port);
        let judge = {
            let (state, destination) = (state.clone(), destination.clone());
            Arc::new(move || state.judge().decide(&destination, port, Protocol::Tcp))
        };
        let report = Arc::new(move |event: HttpEvent| {
            let told = decision(DecisionKind::Http, event.verdict, event.reason);
            state.recorder.tell(Decision {
                name: Some(destination.to_string()),
                port: Some(port),
                rule: event.rule.as_deref().map(ToOwned::to_owned),
                address: event.address,
                detail: event.detail,
                ..told
            });
        });
        HttpContext { name: name.clone(), port, judge, dial: Arc::new(self.way()), report }
    }

    fn ruling(&self) -> Ruling {
        self.state.judge().decide(&self.destination, self.port, Protocol::Tcp)
    }

    fn way(&self) -> Way {
        let track = self.flow.track().clone();
        Way::new(self.state.clone(), track, self.destination.clone(), self.port, Protocol::Tcp)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.state.limits.handshake
    }

    fn tell(&self, ruling: &Ruling, detail: Option<String>, error: Option<&DialError>) {
        let told = ruled(DecisionKind::Tcp, ruling, &self.destination, self.port);
        let address = error.map_or_else(|| self.flow.track().last_address(), DialError::address);
        self.state.recorder.tell(Decision { address: told.address.or(address), detail, ..told });
    }

    fn tell_failed(&self, ruling: &Ruling, error: &DialError) {
        self.tell(&error.ruling(ruling), Some(said(error)), Some(error));
    }
}

/// However it ended: who broke it off knows why.
fn over(_: io::Result<()>) -> End {
    End::Over
}

/// An error and its causes, in one line.
fn said(error: &DialError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
