//! What the outcomes mean. Pure: the only place that says `filtered`.

use sandbar_core::{LegOutcome, VerdictState};

use super::row::Weight;

/// What came of one attempt inside, over everybody who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    /// Somebody got through.
    Reached,
    /// Everybody was refused.
    Refused,
    /// Somebody did not try, or can't say.
    Missing,
}

/// Whether the target was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The host reached it, or it is the sandbox's own.
    There,
    /// The host could not reach it, or did not try.
    Unknown,
}

/// A leg as the verdict sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    /// What it means.
    pub(crate) weight: Weight,
    /// What came of it.
    pub(crate) outcome: LegOutcome,
    /// Whether every one of its attempts was made inside.
    pub(crate) was_tried: bool,
}

/// Why a verdict is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Everything that was to be refused was.
    AllRefused,
    /// Something was reached that was not to be.
    Leak,
    /// What had to be reached was not.
    NoControl,
    /// Something was not tried inside.
    NotTried,
    /// The host itself could not reach a target that it has to.
    HostCutOff,
}

impl Why {
    /// The verdict.
    pub(crate) fn state(self) -> VerdictState {
        match self {
            Self::AllRefused => VerdictState::Filtered,
            Self::Leak => VerdictState::Open,
            Self::NoControl | Self::NotTried | Self::HostCutOff => VerdictState::Inconclusive,
        }
    }
}

/// What an attempt came to for all who made it.
pub(crate) fn together(weight: Weight, runs: &[Inside]) -> Inside {
    let any = |wanted| runs.contains(&wanted);
    if runs.is_empty() {
        return Inside::Missing;
    }
    match weight {
        // To be reached means: by everybody.
        Weight::Control if any(Inside::Refused) => Inside::Refused,
        Weight::Control if any(Inside::Missing) => Inside::Missing,
        Weight::Control => Inside::Reached,
        Weight::Needed | Weight::Optional if any(Inside::Reached) => Inside::Reached,
        Weight::Needed | Weight::Optional if any(Inside::Missing) => Inside::Missing,
        Weight::Needed | Weight::Optional => Inside::Refused,
    }
}

/// What the attempts of a leg come to.
pub(crate) fn leg(weight: Weight, tries: &[(Inside, Target)]) -> Judged {
    let any = |wanted| tries.iter().any(|(inside, _)| *inside == wanted);
    let was_tried = !tries.is_empty() && !any(Inside::Missing);
    let is_shown = tries.iter().any(|(_, target)| *target == Target::There);
    let outcome = match weight {
        Weight::Control if !was_tried => LegOutcome::Untested,
        Weight::Control if any(Inside::Refused) => LegOutcome::Refused,
        Weight::Control => LegOutcome::Reached,
        // A way out counts whatever became of the other attempts.
        Weight::Needed | Weight::Optional if any(Inside::Reached) => LegOutcome::Reached,
        Weight::Needed | Weight::Optional if was_tried && is_shown => LegOutcome::Refused,
        Weight::Needed | Weight::Optional => LegOutcome::Untested,
    };
    Judged { weight, outcome, was_tried }
}

/// What the legs come to. Nothing but a look at each of them makes it `filtered`.
pub(crate) fn verdict(legs: &[Judged]) -> Why {
    let of = |weight| legs.iter().filter(move |leg| leg.weight == weight);
    let denied = || legs.iter().filter(|leg| leg.weight != Weight::Control);
    if denied().any(|leg| leg.outcome == LegOutcome::Reached) {
        return Why::Leak;
    }
    if of(Weight::Control).next().is_none()
        || of(Weight::Control).any(|leg| leg.outcome != LegOutcome::Reached || !leg.was_tried)
    {
        return Why::NoControl;
    }
    if of(Weight::Needed).next().is_none() || denied().any(|leg| !leg.was_tried) {
        return Why::NotTried;
    }
    if of(Weight::Needed).any(|leg| leg.outcome != LegOutcome::Refused) {
        return Why::HostCutOff;
    }
    Why::AllRefused
}
