use async_trait::async_trait;
use sandbar_core::{
    DecisionOptions, Decisions, Destination, EgressCounters, EgressPolicy, Error, ErrorKind, Explanation,
    Network, Protocol, Result, Retry,
};
use sandbar_wire::e2b::{SandboxDetail, SandboxState};

use super::words::{read, words};
use crate::E2bSandbox;
use crate::config::BACKEND;
use crate::error::asleep;

const SET: &str = "set_policy";

#[async_trait]
impl Network for E2bSandbox {
    async fn policy(&self) -> Result<EgressPolicy> {
        let detail = self.detail("policy").await?;
        self.policy_of(&detail).ok_or_else(|| {
            let message = "what this sandbox may reach is not told in words that policies have";
            Error::new(ErrorKind::Protocol, "policy", message).with_backend(BACKEND)
        })
    }

    /// Either the policy is in force when this answers, or the error says which one is. Values of headers can't be read back, so of those it is known
    /// only that they were sent.
    async fn set_policy(&self, policy: EgressPolicy) -> Result<()> {
        let update = words(SET, &policy)?.update();
        let before = self.detail(SET).await?;
        if before.listed.state == SandboxState::Paused {
            return Err(asleep(SET, self.access.id()));
        }
        let lost = match self.access.api().set_network(SET, self.access.id(), &update).await {
            Ok(Some(())) => return Ok(()),
            Ok(None) => return Err(self.not_running(SET).await),
            Err(error) if is_refusal(error.kind()) => return Err(self.in_the_way(SET, error).await),
            Err(error) => error,
        };
        let after = match self.detail(SET).await {
            Ok(detail) => self.policy_of(&detail),
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
            Err(_) => None,
        };
        let shown = |policy: &EgressPolicy| serde_json::to_value(policy).ok();
        match after {
            Some(after) if shown(&after) == shown(&policy) => Ok(()),
            Some(after) if Some(&after) == self.policy_of(&before).as_ref() => {
                let message = format!("the policy is as it was before: {}", lost.message());
                Err(Error::new(lost.kind(), SET, message)
                    .with_backend(BACKEND)
                    .with_retry(Retry::Safe)
                    .with_source(lost))
            }
            _ => {
                let message = format!("which policy is in force is unknown: {}", lost.message());
                Err(Error::new(lost.kind(), SET, message)
                    .with_backend(BACKEND)
                    .with_retry(Retry::OutcomeUnknown)
                    .with_hint("set it again, or destroy the sandbox")
                    .with_source(lost))
            }
        }
    }

    async fn counters(&self) -> Result<EgressCounters> {
        self.not_told("counters", "counters of what was reached").await
    }

    async fn decisions(&self, _options: DecisionOptions) -> Result<Decisions> {
        self.not_told("decisions", "decisions of the firewall").await
    }

    async fn explain(&self, _to: Destination, _port: u16, _protocol: Protocol) -> Result<Explanation> {
        self.not_told("explain", "explanations of the firewall").await
    }
}

impl E2bSandbox {
    fn policy_of(&self, detail: &SandboxDetail) -> Option<EgressPolicy> {
        let is_e2b_itself = self.access.api().config().is_e2b_itself();
        read(detail.network.as_ref(), detail.allow_internet_access, is_e2b_itself)
    }

    /// For a sandbox that is there: whoever asks for one that is gone learns that.
    async fn not_told<T>(&self, operation: &'static str, what: &str) -> Result<T> {
        self.detail(operation).await?;
        Err(Error::unsupported(operation, what, "E2B does not tell").with_backend(BACKEND))
    }
}

/// Whether the API said no, so that nothing was changed.
fn is_refusal(kind: ErrorKind) -> bool {
    !matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Protocol | ErrorKind::Unexpected)
}
