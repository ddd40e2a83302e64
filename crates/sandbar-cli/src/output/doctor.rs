use std::fmt::Write as _;

use sandbar::local::{Finding, FindingState, HostReport};
use serde::Serialize;

use crate::output::escape;

/// The form of decision 0004.
#[derive(Debug, Serialize)]
pub(crate) struct DoctorJson<'a> {
    version: u32,
    fit: Option<bool>,
    conditions: Vec<ConditionJson<'a>>,
}

#[derive(Debug, Serialize)]
struct ConditionJson<'a> {
    id: &'a str,
    title: &'a str,
    need: &'a str,
    state: &'a str,
    fault: Option<&'a str>,
    says: Option<&'a str>,
    observed: &'a str,
    cost: &'a str,
    remedies: &'a [String],
}

impl<'a> From<&'a HostReport> for DoctorJson<'a> {
    fn from(report: &'a HostReport) -> Self {
        let conditions = report.findings.iter().map(|finding| ConditionJson {
            id: finding.condition.id,
            title: finding.condition.title,
            need: finding.condition.need.as_str(),
            state: finding.state.as_str(),
            fault: finding.fault.map(|fault| fault.id),
            says: finding.fault.map(|fault| fault.says),
            observed: &finding.observed,
            cost: finding.condition.cost,
            remedies: &finding.remedies,
        });
        Self { version: 1, fit: report.is_fit(), conditions: conditions.collect() }
    }
}

type Belongs = fn(&Finding) -> bool;

/// The groups of the report for a person, worst first.
const GROUPS: [(Belongs, &str); 5] = [
    (|finding| finding.stops_creation(), "missing, and nothing works without"),
    (|finding| finding.state == FindingState::Unknown, "could not be looked at"),
    (|finding| finding.state == FindingState::Warning, "weaker than it could be"),
    (|finding| finding.state == FindingState::Missing && !finding.stops_creation(), "missing"),
    (|finding| finding.state == FindingState::Ok, "fine"),
];

/// A report for a person: by how bad it is, then by how much it is needed. A command stands on a line of its own, to be copied.
pub(crate) fn doctor_text(report: &HostReport) -> String {
    let width = report.findings.iter().map(|finding| finding.condition.id.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (belongs, heading) in GROUPS {
        let mut group: Vec<&Finding> = report.findings.iter().filter(|finding| belongs(finding)).collect();
        if group.is_empty() {
            continue;
        }
        group.sort_by_key(|finding| finding.condition.need);
        // Writing to a string can't fail.
        let _ = writeln!(text, "{heading}:");
        for finding in group {
            let _ = write!(text, "{}", entry(finding, width));
        }
        text.push('\n');
    }
    text.push_str(match report.is_fit() {
        Some(true) => "sandboxes can be made here\n",
        Some(false) => "no sandbox can be made here before what is missing and needed is mended\n",
        None => "whether sandboxes can be made here is unknown: something needed could not be looked at\n",
    });
    text
}

fn entry(finding: &Finding, width: usize) -> String {
    let Finding { condition, state, fault, observed, remedies } = finding;
    let observed = escape(observed);
    let mut text = String::new();
    if *state == FindingState::Ok {
        let _ = writeln!(text, "  {:<width$}  {observed}", condition.id);
        return text;
    }
    let says = fault.map_or(condition.title, |fault| fault.says);
    let _ = writeln!(text, "  {:<width$}  {says} ({})", condition.id, condition.need.as_str());
    let _ = writeln!(text, "      seen:  {observed}");
    let _ = writeln!(text, "      costs: {}", condition.cost);
    for remedy in remedies {
        let _ = writeln!(text, "      mend:  {}", escape(remedy));
    }
    text
}
