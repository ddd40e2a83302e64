//! The attempts of a full look without a host that looks at itself: for tests that ask the outside what arrived.

use sandbar_core::{EgressLeg, EgressPolicy, Extent, LegClass, LegOutcome};

use super::leg::{Plan, Seen};
use super::surroundings::{HostListeners, Surroundings};
use super::verdict::Judged;
use crate::probe::Tried;

/// The attempts under a policy, with what is expected of each.
#[derive(Debug)]
pub struct LeakSuite {
    plan: Plan,
}

impl LeakSuite {
    /// Every row that the policy has something for.
    pub fn new(policy: &EgressPolicy) -> Self {
        Self { plan: Plan::new(Extent::Full, &Surroundings::of(policy, HostListeners::default(), None)) }
    }

    /// What the probe reads.
    pub fn input(&self) -> Vec<u8> {
        serde_json::to_vec(&self.plan.inside()).unwrap_or_default()
    }

    /// What is not as it should be in what a probe said: attempts that got through or that nobody made, and controls that were not reached.
    pub fn complaints(&self, output: &[u8]) -> Vec<String> {
        let mut complaints = Vec::new();
        for (leg, judged) in self.judge(output) {
            let Some(judged) = judged else { continue };
            let is_reached = leg.outcome == LegOutcome::Reached;
            // Rows about the host's own services and the neighbour have nothing to be tried at.
            let has_tries = !leg.detail.ends_with("nothing to try it at");
            if has_tries && (!judged.was_tried || is_reached != (leg.class == LegClass::Control)) {
                complaints.push(format!("{}: {}", leg.name, leg.detail));
            }
        }
        complaints
    }

    /// The rows that got through, in what a probe said.
    pub fn reached(&self, output: &[u8]) -> Vec<String> {
        let legs = self.judge(output).into_iter().map(|(leg, _)| leg);
        legs.filter(|leg| leg.outcome == LegOutcome::Reached).map(|leg| leg.name).collect()
    }

    fn judge(&self, output: &[u8]) -> Vec<(EgressLeg, Option<Judged>)> {
        let lines = output.split(|byte| *byte == b'\n');
        let tried = lines.filter_map(|line| serde_json::from_slice::<Tried>(line).ok());
        let seen = Seen {
            inside: vec![("probe", tried.map(|tried| (tried.id, tried)).collect())],
            ..Seen::default()
        };
        self.plan.judge(&seen)
    }
}
