use std::collections::BTreeMap;
use std::fmt::Write as _;

use sandbar_core::{EgressLeg, Extent, LegOutcome};

use super::row::{Proof, Row, Try, Weight};
use super::surroundings::Surroundings;
use super::table;
use super::verdict::{self, Inside, Judged, Target};
use crate::probe::{Attempt, Numbered, Outcome, Tried};

/// Longest text about one attempt, in bytes: it is said inside, and nobody reads more.
const MAX_DETAIL: usize = 200;
/// Most attempts that the text about a leg names.
const MAX_NAMED: usize = 4;

/// The legs of a check, with a number for each attempt.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Without attempts: nothing in the policy or on this host is what the row could be tried at.
    legs: Vec<(&'static Row, Option<Vec<Planned>>)>,
}

/// An attempt with its number.
#[derive(Debug)]
struct Planned {
    id: u32,
    attempt: Try,
}

/// What came of the attempts, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// For each program inside that tried: as whom, and what came of it.
    pub(crate) inside: Vec<(&'static str, BTreeMap<u32, Tried>)>,
    /// What came of those of the host.
    pub(crate) host: BTreeMap<u32, Tried>,
}

impl Plan {
    /// Every leg of the extent.
    pub(crate) fn new(extent: Extent, at: &Surroundings) -> Self {
        let mut id = 0;
        let mut number = |attempt| {
            id += 1;
            Planned { id, attempt }
        };
        let legs = table::rows_of(extent)
            .map(|row| (row, row.tries.made(at).map(|tries| tries.into_iter().map(&mut number).collect())));
        Self { legs: legs.collect() }
    }

    /// What is to be tried inside.
    pub(crate) fn inside(&self) -> Vec<Numbered> {
        self.planned()
            .map(|planned| Numbered { id: planned.id, attempt: planned.attempt.attempt.clone() })
            .collect()
    }

    /// What the host is to try.
    pub(crate) fn outside(&self) -> Vec<Numbered> {
        let attempt = |planned: &Planned| -> Option<Attempt> {
            match &planned.attempt.proof {
                Proof::Same => Some(planned.attempt.attempt.clone()),
                Proof::Host(attempt) => Some((**attempt).clone()),
                Proof::Own => None,
            }
        };
        self.planned()
            .filter_map(|planned| Some(Numbered { id: planned.id, attempt: attempt(planned)? }))
            .collect()
    }

    /// What came of each leg. One that there is nothing to try at counts for no verdict, and is told.
    pub(crate) fn judge(&self, seen: &Seen) -> Vec<(EgressLeg, Option<Judged>)> {
        let leg = |(row, tries): &(&'static Row, Option<Vec<Planned>>)| match tries {
            Some(tries) => {
                let (leg, judged) = judge(row, tries, seen);
                (leg, Some(judged))
            }
            None => (not_there(row), None),
        };
        self.legs.iter().map(leg).collect()
    }

    fn planned(&self) -> impl Iterator<Item = &Planned> {
        self.legs.iter().flat_map(|(_, tries)| tries.iter().flatten())
    }
}

fn judge(row: &'static Row, tries: &[Planned], seen: &Seen) -> (EgressLeg, Judged) {
    let pairs: Vec<(Inside, Target)> = tries.iter().map(|planned| pair(row.weight, planned, seen)).collect();
    let judged = verdict::leg(row.weight, &pairs);
    let detail = detail(row, tries, &pairs, judged.outcome, seen);
    let leg = EgressLeg { name: row.id.to_owned(), outcome: judged.outcome, class: row.class(), detail };
    (leg, judged)
}

fn not_there(row: &'static Row) -> EgressLeg {
    EgressLeg {
        name: row.id.to_owned(),
        outcome: LegOutcome::Untested,
        class: row.class(),
        detail: format!("{}: nothing in this policy or on this host is what it could be tried at", row.title),
    }
}

fn pair(weight: Weight, planned: &Planned, seen: &Seen) -> (Inside, Target) {
    let runs: Vec<Inside> = seen.inside.iter().map(|(_, tried)| inside(tried.get(&planned.id))).collect();
    let target = match &planned.attempt.proof {
        Proof::Own => Target::There,
        Proof::Same | Proof::Host(_) => match seen.host.get(&planned.id) {
            Some(Tried { outcome: Outcome::Reached, .. }) => Target::There,
            _ => Target::Unknown,
        },
    };
    (verdict::together(weight, &runs), target)
}

fn inside(tried: Option<&Tried>) -> Inside {
    match tried.map(|tried| tried.outcome) {
        Some(Outcome::Reached) => Inside::Reached,
        Some(Outcome::Refused) => Inside::Refused,
        Some(Outcome::Unclear) | None => Inside::Missing,
    }
}

/// Names the attempts that made the leg what it is.
fn detail(
    row: &Row,
    tries: &[Planned],
    pairs: &[(Inside, Target)],
    outcome: LegOutcome,
    seen: &Seen,
) -> String {
    let mut text = row.title.to_owned();
    if tries.is_empty() {
        text.push_str(": there is nothing to try it at");
        return text;
    }
    let is_control = row.weight == Weight::Control;
    let is_told = |(inside, target): &(Inside, Target)| match outcome {
        LegOutcome::Refused | LegOutcome::Untested if is_control => *inside != Inside::Reached,
        LegOutcome::Reached => *inside == Inside::Reached,
        LegOutcome::Refused => *inside == Inside::Refused && *target == Target::There,
        LegOutcome::Untested => *inside == Inside::Missing || *target == Target::Unknown,
    };
    let told: Vec<_> = tries.iter().zip(pairs).filter(|(_, pair)| is_told(pair)).collect();
    for (index, (planned, pair)) in told.iter().take(MAX_NAMED).enumerate() {
        let mark = if index == 0 { ": " } else { "; " };
        // Writing to a string can't fail.
        let said = if is_control && outcome != LegOutcome::Reached {
            missed(planned, **pair, seen)
        } else {
            said(planned, **pair, outcome, seen)
        };
        let _ = write!(text, "{mark}{said}");
    }
    if told.len() > MAX_NAMED {
        let _ = write!(text, "; and {} more", told.len() - MAX_NAMED);
    }
    text
}

/// What is to be said of one attempt: by those inside, or by the host where it is the host that could not.
fn said(
    planned: &Planned,
    (inside_of, target): (Inside, Target),
    outcome: LegOutcome,
    seen: &Seen,
) -> String {
    let label = &planned.attempt.label;
    if outcome == LegOutcome::Untested && inside_of != Inside::Missing && target == Target::Unknown {
        let why = seen.host.get(&planned.id).map_or("it did not try", |tried| &tried.detail);
        return format!("{label}: the host itself can't reach it: {}", bounded(why));
    }
    format!("{label} {}", by(planned, inside_of, seen))
}

/// What is to be said of something that had to be reached: why it was not, and whether the host fares better.
fn missed(planned: &Planned, (inside_of, target): (Inside, Target), seen: &Seen) -> String {
    let Planned { id, attempt: Try { label, proof, .. } } = planned;
    let mut text = format!("{label} could not be reached {}", by(planned, inside_of, seen));
    match (proof, target) {
        (Proof::Own, _) => {}
        (_, Target::There) => text.push_str("; this host reaches it"),
        (_, Target::Unknown) => {
            let why = seen.host.get(id).map_or("it did not try", |tried| &tried.detail);
            // Writing to a string can't fail.
            let _ = write!(text, "; nor by this host: {}", bounded(why));
        }
    }
    text
}

/// Who came to this, and in what words: the same ones are said once.
fn by(planned: &Planned, inside_of: Inside, seen: &Seen) -> String {
    let mut words: Vec<(Vec<&str>, String)> = Vec::new();
    for (who, tried) in &seen.inside {
        let tried = tried.get(&planned.id);
        if inside(tried) != inside_of {
            continue;
        }
        let word = tried.map_or_else(|| "not tried".to_owned(), |tried| bounded(&tried.detail));
        match words.iter_mut().find(|(_, said)| *said == word) {
            Some((all, _)) => all.push(who),
            None => words.push((vec![who], word)),
        }
    }
    let words: Vec<_> =
        words.into_iter().map(|(all, word)| format!("as {}: {word}", all.join(" and "))).collect();
    if words.is_empty() { "not tried".to_owned() } else { words.join(", ") }
}

/// A text from inside, fit for a report.
fn bounded(text: &str) -> String {
    let mut text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.len() > MAX_DETAIL {
        let end = (0..=MAX_DETAIL).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::verify::surroundings::HostListeners;
    use sandbar_core::EgressPolicy;

    fn plan(extent: Extent, policy: &EgressPolicy) -> Plan {
        let host = HostListeners {
            loopback: vec![(Ipv4Addr::LOCALHOST, 9).into()],
            token: "token".into(),
            ..HostListeners::default()
        };
        Plan::new(extent, &Surroundings::of(policy, host, None))
    }

    fn all(plan: &[Numbered], outcome: Outcome) -> BTreeMap<u32, Tried> {
        let tried = |id| Tried { id, outcome, detail: "\u{1b}[31m".repeat(100), millis: 1 };
        plan.iter().map(|numbered| (numbered.id, tried(numbered.id))).collect()
    }

    #[test]
    fn numbers_are_of_one_attempt_and_the_host_tries_no_others() {
        let policy = EgressPolicy::allow(["a.test:80,443"]).unwrap();
        let plan = plan(Extent::Full, &policy);
        let inside: Vec<u32> = plan.inside().iter().map(|numbered| numbered.id).collect();
        let mut once = inside.clone();
        once.dedup();
        assert!(once == inside && inside.len() > 150, "{}", inside.len());
        assert!(plan.outside().iter().all(|numbered| inside.contains(&numbered.id)));
        let absent: Vec<_> =
            plan.judge(&Seen::default()).into_iter().filter(|(_, judged)| judged.is_none()).collect();
        let names: Vec<_> = absent.iter().map(|(leg, _)| leg.name.as_str()).collect();
        assert_eq!(names, ["host-interfaces", "host-udp", "unix"]);
        assert!(absent.iter().all(|(leg, _)| leg.outcome == LegOutcome::Untested), "{absent:?}");
    }

    #[test]
    fn who_did_not_try_and_what_is_not_there_leave_a_leg_untested() {
        let plan = plan(Extent::Quick, &EgressPolicy::DenyAll);
        let refused = all(&plan.inside(), Outcome::Refused);
        let reached = all(&plan.outside(), Outcome::Reached);
        let named = |seen: &Seen, name: &str| {
            let legs = plan.judge(seen);
            legs.into_iter().find(|(leg, _)| leg.name == name).unwrap().0
        };
        let fine = Seen { inside: vec![("user", refused.clone())], host: reached.clone() };
        assert_eq!(named(&fine, "raw-ipv4").outcome, LegOutcome::Refused);
        assert_eq!(named(&fine, "other-sandbox").outcome, LegOutcome::Untested, "there is none");
        let blind = Seen { inside: vec![("user", refused.clone())], host: BTreeMap::new() };
        let leg = named(&blind, "raw-ipv4");
        assert!(
            leg.outcome == LegOutcome::Untested && leg.detail.contains("the host itself"),
            "{}",
            leg.detail
        );
        let half = Seen { inside: vec![("user", refused), ("root", BTreeMap::new())], host: reached };
        let leg = named(&half, "raw-ipv4");
        assert!(leg.outcome == LegOutcome::Untested && leg.detail.contains("not tried"), "{}", leg.detail);
        assert!(named(&fine, "raw-ipv4").detail.chars().all(|c| !c.is_control()));
    }

    #[test]
    fn no_leg_tries_what_the_policy_allows() {
        let policy =
            EgressPolicy::allow(["example.com", "1.1.1.1:any", "9.9.9.9:any", "10.0.0.0/8:any"]).unwrap();
        let text = format!("{:?}", plan(Extent::Full, &policy).inside());
        assert!(
            !text.contains("Address(1.1.1.1)") && !text.contains("Address(10.0.0.5)"),
            "an allowed address"
        );
        assert!(text.contains("Address(8.8.8.8)") && text.contains("Address(192.168.1.1)"));
        assert!(text.contains("example.org"));
    }

    fn leg(policy: &EgressPolicy, name: &str, inside: Outcome, host: Outcome) -> EgressLeg {
        let plan = plan(Extent::Quick, policy);
        let tried = |attempts: &[Numbered], outcome, detail: &str| -> BTreeMap<u32, Tried> {
            let tried = |id| Tried { id, outcome, detail: detail.to_owned(), millis: 1 };
            attempts.iter().map(|numbered| (numbered.id, tried(numbered.id))).collect()
        };
        let seen = Seen {
            inside: vec![
                ("user", tried(&plan.inside(), inside, "connected, then reset")),
                ("root", tried(&plan.inside(), inside, "connected, then reset")),
            ],
            host: tried(&plan.outside(), host, "no such name"),
        };
        plan.judge(&seen).into_iter().find(|(leg, _)| leg.name == name).unwrap().0
    }

    #[test]
    fn a_name_that_had_to_be_reached_says_why_it_was_not() {
        let policy = EgressPolicy::allow(["gone.test:8443"]).unwrap();
        let missed = leg(&policy, "allowed-name", Outcome::Refused, Outcome::Refused);
        assert_eq!(missed.outcome, LegOutcome::Refused);
        let own = "a name that the policy allows: gone.test:8443 could not be reached as user and root: connected, then reset";
        assert_eq!(missed.detail, format!("{own}; nor by this host: no such name"));
        let missed = leg(&policy, "allowed-name", Outcome::Refused, Outcome::Reached);
        assert_eq!(missed.detail, format!("{own}; this host reaches it"));
        assert_eq!(
            leg(&policy, "allowed-name", Outcome::Unclear, Outcome::Reached).outcome,
            LegOutcome::Untested
        );
    }

    #[test]
    fn everybody_who_tried_is_named() {
        let refused = leg(&EgressPolicy::DenyAll, "raw-ipv4", Outcome::Refused, Outcome::Reached);
        assert!(
            refused.detail.contains("1.1.1.1:443 as user and root: connected, then reset"),
            "{refused:?}"
        );
    }

    #[test]
    fn a_policy_that_allows_every_known_address_has_them_for_targets() {
        for policy in ["0.0.0.0/0", "0.0.0.0/0:443"] {
            let policy = EgressPolicy::allow([policy]).unwrap();
            assert_eq!(
                leg(&policy, "raw-ipv4", Outcome::Reached, Outcome::Reached).outcome,
                LegOutcome::Reached
            );
            let text = format!("{:?}", plan(Extent::Full, &policy).inside());
            assert!(text.contains("Address(1.1.1.1)") && text.contains("Address(10.0.0.1)"), "{policy:?}");
        }
        // Half of them leaves the other half.
        let policy = EgressPolicy::allow(["0.0.0.0/2", "128.0.0.0/1"]).unwrap();
        let detail = leg(&policy, "raw-ipv4", Outcome::Refused, Outcome::Reached).detail;
        assert!(detail.contains("94.140.14.14") && !detail.contains("1.1.1.1"), "{detail}");
    }
}
