use std::fmt;

use http::Method;
use reqwest::Url;
use sandbar_core::{Error, ErrorKind, Retry};

use crate::redact::Redactor;

/// What is known of a call while it is under way and after, for whatever is said about it.
pub(crate) struct Call {
    pub(crate) operation: &'static str,
    pub(crate) backend: &'static str,
    pub(crate) resource: Option<String>,
    pub(crate) method: Method,
    pub(crate) url: Url,
    /// Our own id of it, the same for all attempts: `X-Request-Id`.
    pub(crate) id: String,
    /// Whether the transport may send it twice.
    pub(crate) may_repeat: bool,
    /// Whether the caller may: it makes another key each time.
    pub(crate) is_harmless: bool,
    pub(crate) redactor: Redactor,
}

impl Call {
    /// `GET https://…` without anything secret.
    pub(crate) fn shown(&self) -> String {
        format!("{} {}", self.method, crate::url::shown(&self.url))
    }

    /// An error about it. No credential is in its message.
    pub(crate) fn error(&self, kind: ErrorKind, message: &str) -> Error {
        let error = Error::new(kind, self.operation, self.redactor.text(message)).with_backend(self.backend);
        match &self.resource {
            Some(resource) => error.with_resource(resource),
            None => error,
        }
    }

    /// What to say about trying again after something that the server may have acted on: `repeated` where that does no
    /// harm, whoever does it.
    pub(crate) fn after_effect(&self, repeated: Retry) -> Retry {
        if self.is_harmless { repeated } else { Retry::OutcomeUnknown }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("operation", &self.operation)
            .field("request", &self.redactor.text(&self.shown()))
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
