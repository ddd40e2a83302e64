use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Response};
use jiff::Timestamp;
use sandbar_core::{Error, KillCause, Result, Retry, SandboxId, State};
use sandbar_guest::{Failure, RequestBody, ResponseBody, Reuse, Transport};
use tokio::time::timeout;

use super::link::Link;
use crate::ask::{Answer, ask};
use crate::config::BACKEND;
use crate::error::{held, unknown};
use crate::shim::protocol::{Op, Reply};

/// How long the shim may take to tell what a limit did; without an answer the cause stays unknown.
const CAUSE: Duration = Duration::from_secs(2);

#[async_trait]
impl Transport for Link {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn sandbox(&self) -> &SandboxId {
        self.id()
    }

    async fn send(
        &self,
        request: Request<RequestBody>,
        reuse: Reuse,
        bound: Duration,
        operation: &'static str,
    ) -> Result<Response<ResponseBody>> {
        let folder = self.moving(operation).await?;
        match timeout(bound, self.pool.send(&folder, request, reuse)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(failure)) => Err(self.lost(operation, failure).await),
            // The copy began after the look.
            Err(_) if Link::is_held(self, operation) => {
                Err(held(operation, self.id().as_str(), State::Running, bound)
                    .with_hint("what was asked for may be done once it goes on")
                    .with_retry(Retry::OutcomeUnknown))
            }
            Err(_) => {
                let why = format!("the agent did not answer within {} s", bound.as_secs());
                Err(unknown(operation, self.id().as_str(), why).with_retry(Retry::OutcomeUnknown))
            }
        }
    }

    async fn lost(&self, operation: &'static str, failure: Failure) -> Error {
        Link::lost(self, operation, failure).await
    }

    fn is_held(&self, operation: &'static str) -> bool {
        Link::is_held(self, operation)
    }

    async fn cause_since(&self, started: Timestamp) -> Option<KillCause> {
        let folder = self.live("find the cause").await.ok()?;
        let last = match ask(&folder, Op::Stats, CAUSE, "find the cause").await.ok()? {
            Answer::Reply(reply, _) => match *reply {
                Reply::Stats(usage) => usage.last_kill,
                _ => None,
            },
            Answer::Nobody => None,
        }?;
        (last.at >= started).then_some(last.cause)
    }

    fn process_limit_hint(&self) -> String {
        format!("end some processes, or raise it: `sandbar resources {} --pids N`", self.id())
    }
}
