//! A gateway that decides and lets nothing through: the reference backend emulates none.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use sandbar_core::{
    Decision, DecisionKind, DecisionOptions, DecisionReason, Decisions, Destination, EgressCounters,
    EgressPolicy, EgressRule, EgressRules, Error, ErrorKind, Explanation, Follow, HeaderInjection, Network,
    Protocol, Result, SandboxRecord, Target, Verdict,
};

use crate::mutation::Mutation;
use crate::sandbox::MutantSandbox;

/// Between two looks at decisions that are followed.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(crate) struct Gateway(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    policy: EgressPolicy,
    decisions: Vec<Decision>,
    counters: EgressCounters,
}

impl Gateway {
    /// The record with the policy in force.
    pub(crate) fn recorded(&self, mut record: SandboxRecord, mutation: Option<Mutation>) -> SandboxRecord {
        if mutation != Some(Mutation::RecordKeepsFirstPolicy) {
            record.egress.policy = Some(self.shown(mutation));
        }
        record
    }

    fn shown(&self, mutation: Option<Mutation>) -> EgressPolicy {
        let policy = self.0.lock().unwrap().policy.clone();
        if mutation == Some(Mutation::ShowsInjectedValues) { policy } else { without_values(&policy) }
    }
}

/// As everybody may see it: serialisation leaves values out.
fn without_values(policy: &EgressPolicy) -> EgressPolicy {
    serde_json::from_value(serde_json::to_value(policy).unwrap()).unwrap()
}

/// What this gateway can't do.
fn is_beyond(rule: &EgressRule) -> bool {
    matches!(rule.to, Target::Cidr(cidr) if cidr.network().is_ipv6()) || rule.protocol == Protocol::Udp
}

impl MutantSandbox {
    async fn must_be_there(&self) -> Result<()> {
        if self.is(Mutation::GoneSandboxDeniesAll) {
            return Ok(());
        }
        self.inner.record().await.map(drop)
    }

    fn put(&self, policy: EgressPolicy) {
        let mut state = self.gateway.0.lock().unwrap();
        state.policy = policy;
        if !self.is(Mutation::HidesPolicyChanges) {
            state.decisions.push(Decision {
                at: jiff::Timestamp::now(),
                kind: DecisionKind::Policy,
                verdict: Verdict::Allowed,
                reason: DecisionReason::PolicySet,
                name: None,
                address: None,
                port: None,
                rule: None,
                detail: None,
                bytes_out: None,
                bytes_in: None,
                repeated: 0,
            });
        }
    }
}

#[async_trait]
impl Network for MutantSandbox {
    async fn policy(&self) -> Result<EgressPolicy> {
        self.must_be_there().await?;
        Ok(self.gateway.shown(self.mutation))
    }

    async fn set_policy(&self, mut policy: EgressPolicy) -> Result<()> {
        self.must_be_there().await?;
        if let Err(error) = policy.check("set egress policy") {
            if self.is(Mutation::RefusedPolicyIsInForce) {
                self.put(policy);
            }
            return Err(error);
        }
        if let EgressPolicy::Rules(EgressRules { allow, .. }) = &mut policy {
            if self.is(Mutation::DropsWhatItCanNotEnforce) {
                allow.retain(|rule| !is_beyond(rule));
            }
            if let Some(rule) = allow.iter().find(|rule| is_beyond(rule)) {
                let what = format!("egress rule `{rule}`");
                return Err(Error::unsupported("set egress policy", what, "it is not emulated".to_owned()));
            }
            let has_value = |header: &HeaderInjection| header.reveal().is_some();
            if self.is(Mutation::DropsHeadersWithoutValue) {
                for rule in allow.iter_mut() {
                    rule.inject.retain(has_value);
                }
            }
            if !allow.iter().flat_map(|rule| &rule.inject).all(has_value) {
                return Err(Error::new(ErrorKind::InvalidInput, "set egress policy", "a value is missing"));
            }
        }
        if !self.is(Mutation::SetPolicyIsANoOp) {
            self.put(policy);
        }
        Ok(())
    }

    async fn counters(&self) -> Result<EgressCounters> {
        self.must_be_there().await?;
        Ok(self.gateway.0.lock().unwrap().counters)
    }

    async fn decisions(&self, options: DecisionOptions) -> Result<Decisions> {
        self.must_be_there().await?;
        let mut kept = self.gateway.0.lock().unwrap().decisions.clone();
        let seen = kept.len();
        kept.retain(|decision| options.since.is_none_or(|since| decision.at >= since));
        if let Some(tail) = options.tail.filter(|_| !self.is(Mutation::DecisionsIgnoreTail)) {
            kept.drain(..kept.len().saturating_sub(tail));
        }
        let kept = stream::iter(kept.into_iter().map(Ok));
        if options.follow == Follow::No || self.is(Mutation::DecisionsDoNotFollow) {
            return Ok(kept.boxed());
        }
        let (gateway, inner) = (self.gateway.clone(), self.inner.clone());
        let rest = stream::unfold(seen, move |seen| {
            let (gateway, inner) = (gateway.clone(), inner.clone());
            async move {
                while inner.record().await.is_ok() {
                    let next = gateway.0.lock().unwrap().decisions.get(seen).cloned();
                    if let Some(next) = next {
                        return Some((Ok(next), seen + 1));
                    }
                    tokio::time::sleep(LOOK).await;
                }
                None
            }
        });
        Ok(kept.chain(rest).boxed())
    }

    async fn explain(&self, destination: Destination, port: u16, protocol: Protocol) -> Result<Explanation> {
        self.must_be_there().await?;
        let mut state = self.gateway.0.lock().unwrap();
        if self.is(Mutation::CountsExplanations) {
            state.counters.denied += 1;
        }
        let rules = match &state.policy {
            EgressPolicy::Rules(rules) if !self.is(Mutation::ExplainsTheFirstPolicy) => {
                rules.allow.as_slice()
            }
            _ => &[],
        };
        let of_host = rules.iter().find(|rule| match (&rule.to, &destination) {
            (Target::Name(pattern), Destination::Name(name)) => pattern.matches(name),
            _ => false,
        });
        let rule = of_host.filter(|rule| rule.ports.contains(port) && rule.protocol == protocol);
        let reason = match (of_host, rule, &destination) {
            (_, Some(_), _) => DecisionReason::Rule,
            (Some(_), None, _) => DecisionReason::PortNotAllowed,
            (None, None, Destination::Address(_)) => DecisionReason::ForbiddenAddress,
            (None, None, Destination::Name(_)) => DecisionReason::NotAllowed,
        };
        let is_allowed = rule.is_some() || self.is(Mutation::ExplainsAllAsAllowed);
        Ok(Explanation {
            verdict: if is_allowed { Verdict::Allowed } else { Verdict::Denied },
            reason,
            rule: rule.map(ToString::to_string),
            sentence: format!("{}. A retry will not help.", reason.sentence()),
        })
    }
}
