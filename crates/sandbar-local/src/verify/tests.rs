use proptest::prelude::*;
use sandbar_core::{LegOutcome, VerdictState};

use super::row::Weight;
use super::verdict::{Inside, Judged, Target, Why, leg, together, verdict};

const WEIGHTS: [Weight; 3] = [Weight::Control, Weight::Needed, Weight::Optional];
const INSIDES: [Inside; 3] = [Inside::Reached, Inside::Refused, Inside::Missing];
const TARGETS: [Target; 2] = [Target::There, Target::Unknown];
const OUTCOMES: [LegOutcome; 3] = [LegOutcome::Reached, LegOutcome::Refused, LegOutcome::Untested];

fn legs() -> Vec<Judged> {
    let mut legs = Vec::new();
    for weight in WEIGHTS {
        for outcome in OUTCOMES {
            for was_tried in [true, false] {
                legs.push(Judged { weight, outcome, was_tried });
            }
        }
    }
    legs
}

/// What the specification says, in its own order, leg by leg.
fn oracle(legs: &[Judged]) -> VerdictState {
    let mut reached = false;
    let mut controls = 0;
    let mut controls_reached = 0;
    let mut needed = 0;
    let mut fine = true;
    for leg in legs {
        if leg.weight == Weight::Control {
            controls += 1;
            controls_reached += i32::from(leg.outcome == LegOutcome::Reached && leg.was_tried);
            continue;
        }
        reached |= leg.outcome == LegOutcome::Reached;
        needed += i32::from(leg.weight == Weight::Needed);
        fine &= leg.was_tried;
        fine &= leg.weight == Weight::Optional || leg.outcome == LegOutcome::Refused;
    }
    if reached {
        VerdictState::Open
    } else if controls > 0 && controls == controls_reached && needed > 0 && fine {
        VerdictState::Filtered
    } else {
        VerdictState::Inconclusive
    }
}

#[test]
fn every_combination_of_up_to_four_legs_has_its_verdict() {
    let all = legs();
    let mut chosen: Vec<Vec<Judged>> = vec![Vec::new()];
    let (mut filtered, mut count) = (0, 0);
    for _ in 0..=4 {
        for legs in &chosen {
            let state = verdict(legs).state();
            assert_eq!(state, oracle(legs), "{legs:?}");
            count += 1;
            filtered += usize::from(state == VerdictState::Filtered);
        }
        chosen = chosen
            .iter()
            .filter(|legs| legs.len() < 4)
            .flat_map(|legs| all.iter().map(|leg| [&legs[..], &[*leg]].concat()))
            .collect();
    }
    assert!(count > 100_000 && filtered > 0 && filtered * 100 < count, "{filtered} of {count}");
}

#[test]
fn every_combination_of_up_to_three_attempts_has_its_outcome() {
    for weight in WEIGHTS {
        assert_eq!(leg(weight, &[]), Judged { weight, outcome: LegOutcome::Untested, was_tried: false });
        let pairs: Vec<_> = INSIDES.iter().flat_map(|i| TARGETS.iter().map(move |t| (*i, *t))).collect();
        let mut lists: Vec<Vec<(Inside, Target)>> = pairs.iter().map(|pair| vec![*pair]).collect();
        for _ in 0..2 {
            lists = lists
                .iter()
                .flat_map(|list| pairs.iter().map(|pair| [&list[..], &[*pair]].concat()))
                .chain(lists.iter().cloned())
                .collect();
        }
        for list in lists {
            let judged = leg(weight, &list);
            let any = |wanted| list.iter().any(|(inside, _)| *inside == wanted);
            if judged.outcome == LegOutcome::Refused {
                assert!(judged.was_tried && any(Inside::Refused), "{list:?}");
                let is_shown = list.iter().any(|(_, target)| *target == Target::There);
                assert!(weight == Weight::Control || (is_shown && !any(Inside::Reached)), "{list:?}");
            }
            if weight != Weight::Control {
                assert_eq!(judged.outcome == LegOutcome::Reached, any(Inside::Reached), "{list:?}");
            } else if judged.outcome == LegOutcome::Reached {
                assert!(!any(Inside::Refused) && !any(Inside::Missing), "{list:?}");
            }
            assert_eq!(judged.was_tried, !any(Inside::Missing), "{list:?}");
        }
    }
}

#[test]
fn of_two_who_try_the_worse_news_counts() {
    for one in INSIDES {
        assert_eq!(together(Weight::Needed, &[one]), one);
        for other in INSIDES {
            let both = [one, other];
            let denied = together(Weight::Needed, &both);
            assert_eq!(denied == Inside::Reached, both.contains(&Inside::Reached));
            assert_eq!(denied == Inside::Refused, both == [Inside::Refused; 2]);
            assert_eq!(together(Weight::Control, &both) == Inside::Reached, both == [Inside::Reached; 2]);
        }
    }
    assert_eq!(together(Weight::Control, &[]), Inside::Missing);
}

fn any_leg() -> impl Strategy<Value = Judged> {
    proptest::sample::select(legs())
}

proptest! {
    #[test]
    fn nothing_is_filtered_where_a_leg_was_not_tried(mut all in prop::collection::vec(any_leg(), 0..40), at: prop::sample::Index) {
        prop_assert_eq!(verdict(&all).state(), oracle(&all));
        if all.is_empty() {
            return Ok(());
        }
        let at = at.index(all.len());
        all[at].was_tried = false;
        prop_assert_ne!(verdict(&all), Why::AllRefused);
        all[at].outcome = LegOutcome::Untested;
        prop_assert_ne!(verdict(&all).state(), VerdictState::Filtered);
    }

    #[test]
    fn a_leak_outranks_all(mut all in prop::collection::vec(any_leg(), 0..40), weight in 1_usize..3, was_tried: bool) {
        all.push(Judged { weight: WEIGHTS[weight], outcome: LegOutcome::Reached, was_tried });
        prop_assert_eq!(verdict(&all).state(), VerdictState::Open);
    }
}
