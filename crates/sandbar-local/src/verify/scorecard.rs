use std::collections::BTreeMap;
use std::fmt::Write as _;

use sandbar_core::{EgressVerdict, LegClass, LegOutcome};
use sandbar_egress::Limits;

use super::row::Group;
use super::shown::SHOWN;
use super::table;

/// The scorecard as the document `docs/egress-scorecard.md`, from what a full look saw.
pub fn scorecard_document(seen: &EgressVerdict) -> String {
    let mut groups: BTreeMap<Group, Vec<String>> = BTreeMap::new();
    for row in table::rows() {
        let leg = seen.legs.iter().find(|leg| leg.name == row.id);
        let outcome = match leg.map(|leg| leg.outcome) {
            Some(LegOutcome::Reached) => "reached",
            Some(LegOutcome::Refused) => "refused",
            Some(LegOutcome::Untested) => "untested",
            None => "not tried",
        };
        let line =
            format!("| {} | {} | {outcome} by the probe: `{}` |", row.title, class(row.class()), row.id);
        groups.entry(row.group).or_default().push(line);
    }
    let limits = Limits::default();
    for shown in SHOWN {
        let line = format!(
            "| {} | {} | {} |",
            shown.title,
            class_with(shown.class, shown.number.map(|number| number(&limits))),
            by(shown.test, shown.why)
        );
        groups.entry(shown.group).or_default().push(line);
    }
    let mut text = HEAD.to_owned();
    for (group, lines) in groups {
        // Writing to a string can't fail.
        let _ =
            write!(text, "\n## {}\n\n| what is tried | class | shown by |\n|---|---|---|\n", group.heading());
        for line in lines {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

const HEAD: &str = "\
# The egress scorecard of the local backend

<!-- Made by `cargo xtask gen` from a run of the whole leak suite; do not edit. -->

What a program in a sandbox tries so as to reach what its policy does not allow, and what becomes of it. The policy of the run allows one name, on 80 and
443; everything else is denied. Each row is tried as `user` and as `root`, and by an ordinary user of the host without and with subordinate ids.
`sandbar egress verify --full` tries the rows of the probe on your machine, against your policy.

*blocked*: closed, and a row that is not is a bug. *bounded*: something gets through, and how much has a number. *with interception*: seen only where a
rule has the gateway speak TLS itself (`--inject`). *residual*: can't be closed while the policy allows what it allows. *control*: has to be reached, or
refusals say nothing.
";

fn class_with(class: LegClass, number: Option<String>) -> String {
    match number {
        Some(number) => format!("{}: {number}", self::class(class)),
        None => self::class(class).to_owned(),
    }
}

fn class(class: LegClass) -> &'static str {
    match class {
        LegClass::Blocked => "blocked",
        LegClass::Bounded => "bounded",
        LegClass::WithInterception => "with interception",
        LegClass::Residual => "residual",
        LegClass::Control => "control",
    }
}

fn by(test: Option<&str>, why: Option<&str>) -> String {
    match (test, why) {
        (Some(test), Some(why)) => format!("test `{test}`; {why}"),
        (Some(test), None) => format!("test `{test}`"),
        (None, Some(why)) => why.to_owned(),
        (None, None) => String::new(),
    }
}
