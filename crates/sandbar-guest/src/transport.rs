use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Response};
use jiff::Timestamp;
use sandbar_core::{Error, KillCause, Result, SandboxId};

use crate::EnvdVersion;
use crate::body::{BoxError, RequestBody, ResponseBody};

/// The way to the agent of one sandbox.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync {
    /// The backend's name, for errors.
    fn backend(&self) -> &'static str;

    /// Whose agent it is.
    fn sandbox(&self) -> &SandboxId;

    /// Sends a request, and waits at most `bound` for the head of its answer. An answer is one of the agent's own: what somebody on the way
    /// says instead of it is an error.
    ///
    /// Given up before the head came, the request is cut off. An answer that is dropped before its end closes what it came by, which tells the
    /// agent.
    async fn send(
        &self,
        request: Request<RequestBody>,
        reuse: Reuse,
        bound: Duration,
        operation: &'static str,
    ) -> Result<Response<ResponseBody>>;

    /// What a lost connection means: a sandbox that is gone or does not run says so, in anything else the outcome is unknown.
    async fn lost(&self, operation: &'static str, failure: Failure) -> Error;

    /// Which version the agent is of, where it is not Sandbar's own.
    async fn envd_version(&self, _operation: &'static str) -> Result<EnvdVersion> {
        Ok(EnvdVersion::LATEST)
    }

    /// Whether the sandbox is known to stand still for a moment, in which nothing comes of it.
    fn is_held(&self, _operation: &'static str) -> bool {
        false
    }

    /// Which limit ended something since then, where somebody knows.
    async fn cause_since(&self, _started: Timestamp) -> Option<KillCause> {
        None
    }

    /// What to do where the sandbox has no room for another process.
    fn process_limit_hint(&self) -> String {
        "end some processes".to_owned()
    }
}

/// Whether a connection is good for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// It is, once its answer was read.
    Yes,
    /// It is not: the answer may come before all of the request was sent.
    No,
}

/// Why a request got no answer, or not all of it.
#[derive(Debug)]
pub enum Failure {
    /// Nobody listens: the agent is gone.
    Gone,
    /// The connection broke; the agent may have got the request.
    Broken(BoxError),
    /// It could not be connected for another reason.
    Connect(std::io::Error),
    /// Nothing came for that long, of an agent that is never silent for so long.
    Silent(Duration),
}
