use async_trait::async_trait;
use futures::stream;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use sandbar::{
    Decision, DecisionKind, DecisionOptions, DecisionReason, Decisions, Destination, EgressCounters,
    EgressPolicy, Explanation, Follow, Network, Protocol, Result, Verdict,
};

use super::log::chosen;
use crate::settings::Which;

/// A second after the epoch.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn decision(second: i64, verdict: Verdict) -> Decision {
    Decision {
        at: at(second),
        kind: DecisionKind::Tcp,
        verdict,
        reason: DecisionReason::NotAllowed,
        name: None,
        address: None,
        port: None,
        rule: None,
        detail: None,
        bytes_out: None,
        bytes_in: None,
        repeated: 0,
    }
}

/// Decisions that were made, and with `follow` one more for each pass that is denied, far in the future.
struct Kept(Vec<Decision>);

#[async_trait]
impl Network for Kept {
    async fn policy(&self) -> Result<EgressPolicy> {
        Ok(EgressPolicy::DenyAll)
    }

    async fn set_policy(&self, _: EgressPolicy) -> Result<()> {
        Ok(())
    }

    async fn counters(&self) -> Result<EgressCounters> {
        Ok(EgressCounters::default())
    }

    async fn decisions(&self, options: DecisionOptions) -> Result<Decisions> {
        let DecisionOptions { tail, since, follow } = options;
        let mut kept = self.0.clone();
        kept.retain(|decision| since.is_none_or(|since| decision.at >= since));
        let cut = tail.map_or(0, |tail| kept.len().saturating_sub(tail));
        let mut kept = kept.split_off(cut);
        if follow == Follow::Yes {
            kept.push(Decision { at: Timestamp::MAX, ..decision(0, Verdict::Denied) });
        }
        Ok(stream::iter(kept.into_iter().map(Ok)).boxed())
    }

    async fn explain(&self, _: Destination, _: u16, _: Protocol) -> Result<Explanation> {
        unreachable!("nobody asks")
    }
}

async fn seconds(options: DecisionOptions, which: Which) -> Vec<i64> {
    use Verdict::{Allowed, Denied};
    let kept = Kept(
        [(1, Denied), (2, Allowed), (3, Denied), (4, Denied), (5, Allowed)]
            .map(|(s, v)| decision(s, v))
            .to_vec(),
    );
    let shown: Vec<Decision> = chosen(&kept, options, which).await.unwrap().try_collect().await.unwrap();
    let number = |at: Timestamp| if at == Timestamp::MAX { 99 } else { at.as_second() };
    shown.into_iter().map(|decision| number(decision.at)).collect()
}

#[tokio::test(flavor = "current_thread")]
async fn the_newest_are_counted_among_what_is_shown() {
    let last = |tail| DecisionOptions { tail: Some(tail), ..DecisionOptions::default() };
    assert_eq!(seconds(DecisionOptions::default(), Which::All).await, [1, 2, 3, 4, 5]);
    assert_eq!(seconds(DecisionOptions::default(), Which::Denied).await, [1, 3, 4]);
    assert_eq!(seconds(last(2), Which::All).await, [4, 5]);
    assert_eq!(seconds(last(2), Which::Denied).await, [3, 4]);
    assert_eq!(seconds(last(9), Which::Denied).await, [1, 3, 4]);
    assert_eq!(seconds(last(0), Which::Denied).await, [0_i64; 0]);
    assert_eq!(seconds(DecisionOptions { since: Some(at(4)), ..last(2) }, Which::Denied).await, [4]);
}

#[tokio::test(flavor = "current_thread")]
async fn following_goes_on_after_the_newest() {
    let follow = |tail| DecisionOptions { tail, follow: Follow::Yes, ..DecisionOptions::default() };
    assert_eq!(seconds(follow(None), Which::Denied).await, [1, 3, 4, 99]);
    assert_eq!(seconds(follow(Some(2)), Which::Denied).await, [3, 4, 99]);
    assert_eq!(seconds(follow(Some(0)), Which::Denied).await, [99]);
    assert_eq!(seconds(DecisionOptions { since: Some(at(5)), ..follow(Some(2)) }, Which::Denied).await, [99]);
}
