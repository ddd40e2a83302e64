use sandbar_core::{EgressLeg, EgressVerdict, LegClass, LegOutcome, VerdictState};

use super::Leg;

/// What was seen of one leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Reached,
    Refused,
    /// It was refused, and where nothing is denied it could not be reached either: that says nothing.
    DeadEnd,
    /// It could not be tried.
    Untried(String),
}

/// The verdict on what was seen. A denied leg that was reached decides, whatever else; then nothing is `Filtered` unless every denied leg was refused
/// while a control shows that something could be reached.
pub(crate) fn judge(seen: &[(Leg, Seen)], has_control: bool) -> EgressVerdict {
    let denied = || seen.iter().filter(|(leg, _)| leg.class == LegClass::Blocked);
    let is_open = denied().any(|(_, seen)| *seen == Seen::Reached);
    let controls_are_reached =
        seen.iter().filter(|(leg, _)| leg.class == LegClass::Control).all(|(_, seen)| *seen == Seen::Reached);
    let all_are_refused = denied().all(|(_, seen)| *seen == Seen::Refused) && denied().next().is_some();
    let state = if is_open {
        VerdictState::Open
    } else if has_control && controls_are_reached && all_are_refused {
        VerdictState::Filtered
    } else {
        VerdictState::Inconclusive
    };
    let words: Vec<_> = seen.iter().map(|(leg, seen)| format!("{}: {}", leg.name, word(seen))).collect();
    let remediation = match state {
        VerdictState::Filtered => None,
        VerdictState::Open => {
            Some("set an egress policy that denies what was reached, and look whether the platform keeps it")
        }
        VerdictState::Inconclusive => Some(
            "look whether what is allowed can be reached at all, and whether the template has curl and bash",
        ),
    };
    EgressVerdict {
        state,
        detail: format!("tried in a sandbox made under the policy: {}", words.join("; ")),
        remediation: remediation.map(str::to_owned),
        legs: seen.iter().map(|(leg, seen)| told(leg, seen)).collect(),
    }
}

/// Nothing was seen at all.
pub(crate) fn nothing(why: &str, remediation: &str) -> EgressVerdict {
    EgressVerdict {
        state: VerdictState::Inconclusive,
        detail: why.to_owned(),
        remediation: Some(remediation.to_owned()),
        legs: Vec::new(),
    }
}

fn word(seen: &Seen) -> &str {
    match seen {
        Seen::Reached => "reached",
        Seen::Refused => "refused",
        Seen::DeadEnd => "not to be reached from anywhere",
        Seen::Untried(_) => "not tried",
    }
}

fn told(leg: &Leg, seen: &Seen) -> EgressLeg {
    let outcome = match seen {
        Seen::Reached => LegOutcome::Reached,
        Seen::Refused => LegOutcome::Refused,
        Seen::DeadEnd | Seen::Untried(_) => LegOutcome::Untested,
    };
    let detail = match seen {
        Seen::Untried(why) => why.clone(),
        seen => word(seen).to_owned(),
    };
    EgressLeg { name: leg.name.clone(), outcome, class: leg.class, detail }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::legs::Probe;
    use super::*;

    fn leg(class: LegClass) -> Leg {
        Leg { name: "leg".into(), class, probe: Probe::Https("example.test".into()) }
    }

    fn three(allowed: bool, host: bool, address: bool) -> VerdictState {
        let seen = |reached| if reached { Seen::Reached } else { Seen::Refused };
        let legs = [
            (leg(LegClass::Control), seen(allowed)),
            (leg(LegClass::Blocked), seen(host)),
            (leg(LegClass::Blocked), seen(address)),
        ];
        judge(&legs, true).state
    }

    #[test]
    fn the_eight_combinations() {
        assert_eq!(three(true, false, false), VerdictState::Filtered);
        assert_eq!(three(true, true, false), VerdictState::Open);
        assert_eq!(three(true, false, true), VerdictState::Open);
        assert_eq!(three(true, true, true), VerdictState::Open);
        assert_eq!(three(false, false, false), VerdictState::Inconclusive);
        assert_eq!(three(false, true, false), VerdictState::Open);
        assert_eq!(three(false, false, true), VerdictState::Open);
        assert_eq!(three(false, true, true), VerdictState::Open);
    }

    #[test]
    fn the_detail_names_what_was_seen() {
        let verdict =
            judge(&[(leg(LegClass::Control), Seen::Reached), (leg(LegClass::Blocked), Seen::Refused)], true);
        assert!(verdict.detail.contains("leg: reached; leg: refused"), "{}", verdict.detail);
        assert!(verdict.remediation.is_none());
        assert_eq!(nothing("no", "do").remediation.as_deref(), Some("do"));
    }

    fn seen() -> impl Strategy<Value = Seen> {
        prop_oneof![
            Just(Seen::Reached),
            Just(Seen::Refused),
            Just(Seen::DeadEnd),
            Just(Seen::Untried("why".into())),
        ]
    }

    fn class() -> impl Strategy<Value = LegClass> {
        prop_oneof![Just(LegClass::Control), Just(LegClass::Blocked)]
    }

    proptest! {
        #[test]
        fn filtered_is_only_what_was_refused_while_others_were_reached(
            all in prop::collection::vec((class(), seen()), 0..6),
            has_control: bool,
        ) {
            let legs: Vec<_> = all.iter().map(|(class, seen)| (leg(*class), seen.clone())).collect();
            let denied: Vec<_> = all.iter().filter(|(class, _)| *class == LegClass::Blocked).map(|(_, seen)| seen).collect();
            let controls = all.iter().filter(|(class, _)| *class == LegClass::Control);
            let state = judge(&legs, has_control).state;
            let is_filtered = has_control
                && !denied.is_empty()
                && denied.iter().all(|seen| **seen == Seen::Refused)
                && controls.into_iter().all(|(_, seen)| *seen == Seen::Reached);
            prop_assert_eq!(state == VerdictState::Filtered, is_filtered);
            prop_assert_eq!(state == VerdictState::Open, denied.contains(&&Seen::Reached));
        }
    }
}
