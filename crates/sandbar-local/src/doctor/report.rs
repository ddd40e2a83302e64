use super::condition::{Condition, Fault, Need, Weight};
use super::table;
use super::wording::Facts;

/// What [`Doctor`](crate::Doctor) found: one finding for each condition, in the order of [`CONDITIONS`](crate::CONDITIONS).
#[derive(Clone, Debug)]
pub struct HostReport {
    /// The findings.
    pub findings: Vec<Finding>,
}

/// A condition as it was found on this machine.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which.
    pub condition: &'static Condition,
    /// How it is.
    pub state: FindingState,
    /// Which of its faults, where it is one of those.
    pub fault: Option<&'static Fault>,
    /// What was seen.
    pub observed: String,
    /// The commands that mend it, to be given in this order; empty where nothing has to be mended, or nothing can be.
    pub remedies: Vec<String>,
}

/// How a condition was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingState {
    /// It holds.
    Ok,
    /// It holds in part, or not for long.
    Warning,
    /// It does not hold.
    Missing,
    /// It could not be looked at.
    Unknown,
}

impl FindingState {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        }
    }
}

impl HostReport {
    /// Whether sandboxes can be made here: `Some(false)` if something is missing that a creation fails for, `None` if nothing of that kind is known
    /// and something needed could not be looked at.
    pub fn is_fit(&self) -> Option<bool> {
        let is_unknown = |finding: &Finding| {
            finding.condition.need == Need::Needed && finding.state == FindingState::Unknown
        };
        if self.findings.iter().any(Finding::stops_creation) {
            Some(false)
        } else if self.findings.iter().any(is_unknown) {
            None
        } else {
            Some(true)
        }
    }

    /// The finding on the condition of this id.
    pub fn find(&self, id: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.condition.id == id)
    }
}

impl Finding {
    /// Whether a creation fails for it. Of what is recommended a creation does without what is not there, and fails for what is there and broken.
    pub fn stops_creation(&self) -> bool {
        self.condition.need != Need::Optional && self.state == FindingState::Missing
    }

    /// The condition holds.
    pub(super) fn ok(condition: &'static Condition, observed: impl Into<String>) -> Self {
        Self {
            condition,
            state: FindingState::Ok,
            fault: None,
            observed: observed.into(),
            remedies: Vec::new(),
        }
    }

    /// It could not be looked at.
    pub(super) fn unknown(condition: &'static Condition, why: impl Into<String>) -> Self {
        let state = FindingState::Unknown;
        Self { condition, state, fault: None, observed: why.into(), remedies: Vec::new() }
    }

    /// It has this fault.
    pub(super) fn bad(fault: &'static Fault, facts: &Facts, observed: impl Into<String>) -> Self {
        let state = match fault.weight {
            Weight::Missing => FindingState::Missing,
            Weight::Warning => FindingState::Warning,
        };
        Self {
            condition: table::condition_of(fault),
            state,
            fault: Some(fault),
            observed: observed.into(),
            remedies: facts.remedies(fault),
        }
    }
}
