use std::sync::Arc;

use async_trait::async_trait;
use sandbar_core::{
    Decision, DecisionOptions, Decisions, Destination, EgressCounters, EgressPolicy, Explanation, Follow,
    Network, Protocol, Result, State,
};

use super::Shared;
use super::following::{Following, STEP, read_aside, stream_of};
use super::link::Link;
use crate::ask::{ANSWER, misplaced};
use crate::error::{io_error, unknown};
use crate::home::{DecisionReader, Folder};
use crate::network;
use crate::shim::protocol::{Op, Reply};

const SHOW: &str = "show egress policy";
const SET: &str = "set egress policy";
const COUNT: &str = "count egress";
const READ: &str = "read egress decisions";
const EXPLAIN: &str = "explain egress";

#[async_trait]
impl Network for Shared {
    async fn policy(&self) -> Result<EgressPolicy> {
        let link = &self.0;
        let policy = link.see(SHOW)?.policy().map_err(|cause| unknown(SHOW, link.id().as_str(), cause))?;
        policy.ok_or_else(|| unknown(SHOW, link.id().as_str(), "its policy is not kept"))
    }

    async fn set_policy(&self, policy: EgressPolicy) -> Result<()> {
        let sealed = network::seal(SET, policy)?;
        let op = || Op::SetPolicy { policy: sealed.clone() };
        match self.0.ask_shim(op, ANSWER, SET).await? {
            (Reply::PolicySet, _) => Ok(()),
            _ => Err(misplaced(SET)),
        }
    }

    async fn counters(&self) -> Result<EgressCounters> {
        self.0.egress_counters(COUNT).await
    }

    async fn decisions(&self, options: DecisionOptions) -> Result<Decisions> {
        let link = &self.0;
        let seen = link.see(READ)?;
        if seen.state() == State::Running {
            // Whatever was decided up to now is to be there.
            link.egress_counters(READ).await?;
        }
        let folder = seen.folder;
        let (first, reader, folder) = read_aside(DecisionReader::default(), folder, READ).await?;
        let first = chosen(first, &options);
        let following = (options.follow == Follow::Yes).then(|| FollowingDecisions {
            link: Arc::clone(link),
            folder,
            reader,
            options,
        });
        Ok(stream_of(first, following))
    }

    async fn explain(&self, destination: Destination, port: u16, protocol: Protocol) -> Result<Explanation> {
        let op = || Op::Explain { destination: destination.clone(), port, protocol };
        match self.0.ask_shim(op, ANSWER, EXPLAIN).await? {
            (Reply::Explained(explanation), _) => Ok(explanation),
            _ => Err(misplaced(EXPLAIN)),
        }
    }
}

impl Link {
    async fn egress_counters(&self, operation: &'static str) -> Result<EgressCounters> {
        match self.ask_shim(|| Op::Egress, ANSWER, operation).await? {
            (Reply::Egress(counters), _) => Ok(counters),
            _ => Err(misplaced(operation)),
        }
    }
}

/// Those that are wanted, oldest first. What stands for many is written once no more of its kind come, so that the file is in another order.
fn chosen(mut decisions: Vec<Decision>, options: &DecisionOptions) -> Vec<Decision> {
    decisions.retain(|decision| wants(options, decision));
    decisions.sort_by_key(|decision| decision.at);
    if let Some(tail) = options.tail {
        decisions.drain(..decisions.len().saturating_sub(tail));
    }
    decisions
}

fn wants(options: &DecisionOptions, decision: &Decision) -> bool {
    options.since.is_none_or(|since| decision.at >= since)
}

/// A reader of decisions that are still made.
struct FollowingDecisions {
    link: Arc<Link>,
    folder: Folder,
    reader: DecisionReader,
    options: DecisionOptions,
}

#[async_trait]
impl Following for FollowingDecisions {
    type Item = Decision;

    async fn next(&mut self) -> Result<(Vec<Decision>, bool)> {
        loop {
            let seen = self.link.inner().look(self.link.id(), READ)?;
            let goes_on = seen.as_ref().is_some_and(|seen| seen.state() == State::Running);
            // Read after the look: what was decided before the end is all there by now.
            let mut decisions =
                self.reader.read(&self.folder).map_err(|cause| io_error(READ, "`egress.jsonl`", cause))?;
            decisions.retain(|decision| wants(&self.options, decision));
            if !decisions.is_empty() || !goes_on {
                return Ok((decisions, goes_on));
            }
            tokio::time::sleep(STEP).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use sandbar_core::{DecisionKind, DecisionReason, Verdict};

    use super::*;

    #[test]
    fn decisions_are_told_oldest_first_and_the_newest_are_the_last_of_them() {
        let of = |(second, port)| Decision {
            at: Timestamp::from_second(second).unwrap(),
            kind: DecisionKind::Tcp,
            verdict: Verdict::Denied,
            reason: DecisionReason::NotAllowed,
            name: None,
            address: None,
            port: Some(port),
            rule: None,
            detail: None,
            bytes_out: None,
            bytes_in: None,
            repeated: 0,
        };
        // One of the third second was held back till the seventh; two of one moment stay as they are.
        let written: Vec<_> = [(2, 1), (5, 2), (5, 3), (7, 4), (3, 5)].map(of).into();
        let ports = |options: &DecisionOptions| -> Vec<_> {
            chosen(written.clone(), options).iter().filter_map(|decision| decision.port).collect()
        };
        assert_eq!(ports(&DecisionOptions::default()), [1, 5, 2, 3, 4]);
        assert_eq!(ports(&DecisionOptions { tail: Some(2), ..DecisionOptions::default() }), [3, 4]);
        let since = Timestamp::from_second(3).ok();
        assert_eq!(ports(&DecisionOptions { since, ..DecisionOptions::default() }), [5, 2, 3, 4]);
    }
}
