use std::fmt::Write as _;

use sandbar::{EgressLeg, EgressVerdict, VerdictState};
use serde::Serialize;

use crate::output::record::word;
use crate::output::{columns, escape};

/// The form of decision 0004.
#[derive(Debug, Serialize)]
pub(crate) struct VerdictJson<'a> {
    version: u32,
    state: VerdictState,
    detail: &'a str,
    remediation: Option<&'a str>,
    legs: &'a [EgressLeg],
}

impl<'a> From<&'a EgressVerdict> for VerdictJson<'a> {
    fn from(verdict: &'a EgressVerdict) -> Self {
        let EgressVerdict { state, detail, remediation, legs } = verdict;
        Self { version: 1, state: *state, detail, remediation: remediation.as_deref(), legs }
    }
}

/// A verdict for a person: every leg, and then what follows from them.
pub(crate) fn verdict_text(verdict: &EgressVerdict) -> String {
    let EgressVerdict { state, detail, remediation, legs } = verdict;
    let rows: Vec<_> = legs
        .iter()
        .map(|EgressLeg { name, outcome, class, detail }| {
            [name.clone(), word(outcome), word(class).replace('_', " "), detail.clone()]
        })
        .collect();
    let mut text = String::new();
    if !rows.is_empty() {
        text = columns(["LEG", "OUTCOME", "CLASS", "DETAIL"], &rows) + "\n";
    }
    // Writing to a string can't fail.
    let _ = writeln!(text, "{}: {}", word(state), escape(detail));
    if let Some(remediation) = remediation {
        let _ = writeln!(text, "  remedy: {}", escape(remediation));
    }
    text
}

#[cfg(test)]
mod tests {
    use sandbar::{LegClass, LegOutcome};
    use serde_json::json;

    use super::*;

    fn verdict() -> EgressVerdict {
        let leg = |name: &str, outcome, class, detail: &str| EgressLeg {
            name: name.into(),
            outcome,
            class,
            detail: detail.into(),
        };
        EgressVerdict {
            state: VerdictState::Inconclusive,
            detail: "the host can't reach 192.0.2.1\x1b[2J".into(),
            remediation: Some("try it where there is a network".into()),
            legs: vec![
                leg("control", LegOutcome::Reached, LegClass::Control, "in 1 ms"),
                leg("inner host", LegOutcome::Untested, LegClass::WithInterception, "no rule asks for it"),
            ],
        }
    }

    #[test]
    fn people_see_every_leg_and_what_follows() {
        insta::assert_snapshot!(verdict_text(&verdict()), @r"
        LEG         OUTCOME   CLASS              DETAIL
        control     reached   control            in 1 ms
        inner host  untested  with interception  no rule asks for it

        inconclusive: the host can't reach 192.0.2.1\u{1b}[2J
          remedy: try it where there is a network
        ");
    }

    #[test]
    fn without_legs_there_is_no_table() {
        let none = EgressVerdict { legs: Vec::new(), detail: "nothing was tried".into(), ..verdict() };
        insta::assert_snapshot!(verdict_text(&none), @r"
        inconclusive: nothing was tried
          remedy: try it where there is a network
        ");
    }

    #[test]
    fn json_has_the_keys_at_the_top() {
        let mut form = serde_json::to_value(VerdictJson::from(&verdict())).unwrap();
        form.as_object_mut().unwrap().retain(|key, _| key != "detail");
        assert_eq!(
            form,
            json!({
                "version": 1, "state": "inconclusive", "remediation": "try it where there is a network",
                "legs": [
                    {"name": "control", "outcome": "reached", "class": "control", "detail": "in 1 ms"},
                    {"name": "inner host", "outcome": "untested", "class": "with_interception", "detail": "no rule asks for it"},
                ],
            })
        );
    }
}
