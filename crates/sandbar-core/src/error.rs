use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::State;

/// The result of every call of the contract.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in which operation, on what, and whether trying again helps.
///
/// `Display` prints one level; [`StdError::source`] carries the rest. Neither shows a secret.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    backend: Option<&'static str>,
    resource: Option<String>,
    message: String,
    hint: Option<String>,
    feature: Option<String>,
    state: Option<State>,
    retry: Retry,
    partial: Option<PartialOutput>,
    left_behind: Vec<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`]. Callers branch on this and on nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is malformed or out of range. Nothing was done.
    InvalidInput,
    /// The backend has no such option. Nothing was done; [`Error::feature`] names it.
    Unsupported,
    /// Credentials are missing or wrong.
    Unauthenticated,
    /// The caller is known and may not do this.
    PermissionDenied,
    /// The thing named positively does not exist.
    NotFound,
    /// A thing of this name exists already.
    AlreadyExists,
    /// The thing exists and is in a state in which this can't be done now; [`Error::state`] says which.
    Conflict,
    /// A quota, rate or size limit was reached.
    LimitExceeded,
    /// A deadline passed.
    Timeout,
    /// The backend could not be reached or could not answer: the state is unknown.
    Unavailable,
    /// The other side said something that makes no sense.
    Protocol,
    /// The host or the configuration lacks something.
    Config,
    /// Anything else.
    Unexpected,
}

/// Whether trying the same call again can help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// The same call will fail the same way.
    #[default]
    Never,
    /// Nothing was done; the call may be repeated as it is.
    Safe,
    /// As [`Retry::Safe`], but not before this long.
    After(Duration),
    /// The call may or may not have taken effect; look before repeating it.
    OutcomeUnknown,
}

/// What a command had written before its call failed.
#[derive(Clone, Debug, Default)]
pub struct PartialOutput {
    /// Bytes of standard output so far, within the call's output limit.
    pub stdout: Bytes,
    /// Bytes of standard error so far, within the call's output limit.
    pub stderr: Bytes,
    /// Whether the process was positively ended (`Some(true)`), positively lives (`Some(false)`), or is in doubt.
    pub ended: Option<bool>,
}

impl Error {
    /// An error of `kind` in `operation`, with a message in lower case and backticks round values.
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            operation,
            backend: None,
            resource: None,
            message: message.into(),
            hint: None,
            feature: None,
            state: None,
            retry: Retry::default(),
            partial: None,
            left_behind: Vec::new(),
            source: None,
        }))
    }

    /// [`ErrorKind::InvalidInput`]: what was wrong, what was expected.
    pub fn invalid(operation: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, operation, message)
    }

    /// [`ErrorKind::Unsupported`], naming the feature and why it is not there.
    pub fn unsupported(operation: &'static str, feature: impl Into<String>, why: impl fmt::Display) -> Self {
        let feature = feature.into();
        let mut error =
            Self::new(ErrorKind::Unsupported, operation, format!("{feature} is not supported: {why}"));
        error.0.feature = Some(feature);
        error
    }

    /// [`ErrorKind::Conflict`] with the state that stands in the way.
    pub fn conflict(operation: &'static str, state: State, message: impl Into<String>) -> Self {
        let mut error = Self::new(ErrorKind::Conflict, operation, message);
        error.0.state = Some(state);
        error
    }

    /// [`ErrorKind::NotFound`] for `resource`.
    pub fn not_found(operation: &'static str, resource: impl Into<String>) -> Self {
        let resource = resource.into();
        Self::new(ErrorKind::NotFound, operation, format!("{resource} does not exist"))
            .with_resource(resource)
    }

    /// Names another operation: the one that whoever is told asked for.
    pub fn with_operation(mut self, operation: &'static str) -> Self {
        self.0.operation = operation;
        self
    }

    /// Names the backend.
    pub fn with_backend(mut self, backend: &'static str) -> Self {
        self.0.backend = Some(backend);
        self
    }

    /// Names what the operation was on.
    pub fn with_resource(mut self, resource: impl Into<String>) -> Self {
        self.0.resource = Some(resource.into());
        self
    }

    /// Says what to do about it.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Says whether trying again helps.
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// Keeps what a command had written.
    pub fn with_partial(mut self, partial: PartialOutput) -> Self {
        self.0.partial = Some(partial);
        self
    }

    /// Names something that the failed operation could not remove.
    pub fn with_left_behind(mut self, what: impl Into<String>) -> Self {
        self.0.left_behind.push(what.into());
        self
    }

    /// Keeps the cause.
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The kind, to branch on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that failed, such as `create`.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The backend, where it is known.
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// What the operation was on.
    pub fn resource(&self) -> Option<&str> {
        self.0.resource.as_deref()
    }

    /// The message without operation and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The missing feature of an [`ErrorKind::Unsupported`].
    pub fn feature(&self) -> Option<&str> {
        self.0.feature.as_deref()
    }

    /// The state that an [`ErrorKind::Conflict`] met.
    pub fn state(&self) -> Option<State> {
        self.0.state
    }

    /// Whether trying again helps.
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// What a command had written before the call failed.
    pub fn partial(&self) -> Option<&PartialOutput> {
        self.0.partial.as_ref()
    }

    /// What the failed operation could not remove.
    pub fn left_behind(&self) -> &[String] {
        &self.0.left_behind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.operation, self.0.message)?;
        if !self.0.left_behind.is_empty() {
            write!(f, " (left behind: {})", self.0.left_behind.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("operation", &self.0.operation)
            .field("backend", &self.0.backend)
            .field("resource", &self.0.resource)
            .field("message", &self.0.message)
            .field("hint", &self.0.hint)
            .field("retry", &self.0.retry)
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
