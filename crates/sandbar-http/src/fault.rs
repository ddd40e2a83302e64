//! Why no answer came, in the contract's terms. The one place where faults of the transport become errors.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use reqwest::Url;
use sandbar_core::{Error, ErrorKind, Retry};

use crate::call::Call;
use crate::retry::Ended;

/// How an attempt failed.
#[derive(Debug)]
pub(crate) struct Fault {
    stage: Stage,
    kind: ErrorKind,
    message: String,
    hint: Option<&'static str>,
    cause: Option<Cause>,
    /// An error of the caller's own stream, which is what failed then.
    own: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing reached the server.
    Unsent,
    /// Nothing did, and nothing would another time.
    Refused,
    /// It may have acted, and no whole answer came.
    Unanswered,
    /// It has answered with what can't be used, and would again.
    Unusable,
}

impl Fault {
    fn new(stage: Stage, kind: ErrorKind, message: String) -> Self {
        Self { stage, kind, message, hint: None, cause: None, own: None }
    }

    /// What the HTTP library says of an attempt.
    pub(crate) fn of(error: reqwest::Error, url: &Url) -> Self {
        let error = error.without_url();
        let reason = innermost(&error);
        let mut fault = if error.is_builder() {
            Self::new(Stage::Refused, ErrorKind::InvalidInput, format!("the request can't be sent: {reason}"))
        } else if error.is_connect() {
            Self::unconnected(&error, &reason, url)
        } else if any(&error, &|e| e.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse)) {
            let message = format!("the answer is no HTTP: {reason}");
            Self::new(Stage::Unanswered, ErrorKind::Protocol, message)
        } else {
            Self::new(Stage::Unanswered, ErrorKind::Unavailable, format!("no whole answer came: {reason}"))
        };
        fault.cause = Some(Cause(chain(&error)));
        fault
    }

    fn unconnected(error: &reqwest::Error, reason: &str, url: &Url) -> Self {
        let place = crate::url::place(url);
        if any(error, &|e| e.downcast_ref::<rustls::Error>().is_some()) {
            let is_about_trust = any(error, &|e| {
                use rustls::Error::{General, InvalidCertificate};
                matches!(e.downcast_ref(), Some(InvalidCertificate(_) | General(_)))
            });
            let why = if is_about_trust { "can't be trusted" } else { "can't be talked to over TLS" };
            let message = format!("`{place}` {why}: {reason}");
            let mut fault = Self::new(Stage::Refused, ErrorKind::Unavailable, message);
            fault.hint = is_about_trust.then_some(
                "install the system's root certificates, or name a file of those to trust in `SSL_CERT_FILE`",
            );
            return fault;
        }
        let reason = if error.is_timeout() { "it took too long" } else { reason };
        Self::new(Stage::Unsent, ErrorKind::Unavailable, format!("no connection to `{place}`: {reason}"))
    }

    /// No answer, or not the end of it, in time.
    pub(crate) fn late(within: Duration) -> Self {
        Self::new(Stage::Unanswered, ErrorKind::Timeout, format!("no whole answer came within {within:?}"))
    }

    /// A stream went silent.
    pub(crate) fn silent(since: Duration) -> Self {
        Self::new(Stage::Unanswered, ErrorKind::Timeout, format!("nothing more came for {since:?}"))
    }

    /// More than is held.
    pub(crate) fn too_long(limit: usize) -> Self {
        let message = format!("the answer is longer than the {limit} bytes that are read of it");
        Self::new(Stage::Unusable, ErrorKind::Protocol, message)
    }

    /// The caller's own stream ended with an error.
    pub(crate) fn own(error: Error) -> Self {
        let mut fault = Self::new(Stage::Unusable, error.kind(), String::new());
        fault.own = Some(error);
        fault
    }

    /// The same where part of the answer is in the caller's hands already.
    pub(crate) fn midway(mut self) -> Self {
        if self.stage == Stage::Unsent {
            self.stage = Stage::Unanswered;
        }
        self
    }

    pub(crate) fn ended(&self) -> Ended<'static> {
        match self.stage {
            Stage::Unsent => Ended::Unsent,
            Stage::Unanswered => Ended::Unanswered,
            Stage::Refused | Stage::Unusable => Ended::Final,
        }
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn into_error(self, call: &Call) -> Error {
        let retry = match self.stage {
            Stage::Unsent => Retry::Safe,
            Stage::Refused => Retry::Never,
            Stage::Unanswered => call.after_effect(Retry::Safe),
            Stage::Unusable => call.after_effect(Retry::Never),
        };
        if let Some(own) = self.own {
            return own.with_operation(call.operation).with_backend(call.backend).with_retry(retry);
        }
        let mut message = match self.stage {
            Stage::Unsent | Stage::Refused => self.message,
            Stage::Unanswered | Stage::Unusable => {
                format!("`{}`: {} (request `{}`)", call.shown(), self.message, call.id)
            }
        };
        if retry == Retry::OutcomeUnknown {
            message.push_str("; whether it was done is unknown");
        }
        let mut error = call.error(self.kind, &message).with_retry(retry);
        if let Some(hint) = self.hint {
            error = error.with_hint(hint);
        }
        match self.cause {
            Some(Cause(text)) => error.with_source(Cause(call.redactor.text(&text))),
            None => error,
        }
    }
}

/// What the libraries below said, as text: their own errors may hold an address or a header.
#[derive(Debug)]
struct Cause(String);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Cause {}

/// An error and all below it. What an `io::Error` was made from is not its source.
fn visit<'a>(error: &'a (dyn StdError + 'static), see: &mut dyn FnMut(&'a (dyn StdError + 'static))) {
    see(error);
    let below = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner as &(dyn StdError + 'static)),
        None => error.source(),
    };
    if let Some(below) = below {
        visit(below, see);
    }
}

fn any(error: &(dyn StdError + 'static), holds: &dyn Fn(&(dyn StdError + 'static)) -> bool) -> bool {
    let mut found = false;
    visit(error, &mut |error| found |= holds(error));
    found
}

fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    visit(error, &mut |error| {
        let text = error.to_string();
        if texts.last() != Some(&text) {
            texts.push(text);
        }
    });
    texts.join(": ")
}

fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut last = String::new();
    visit(error, &mut |error| last = error.to_string());
    // Rust's own texts begin with a capital, ours don't.
    match last.split_at_checked(1) {
        Some((first, rest)) if rest.starts_with(|c: char| c.is_lowercase()) => first.to_lowercase() + rest,
        _ => last,
    }
}
