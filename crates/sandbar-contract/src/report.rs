use std::fmt;
use std::time::Duration;

/// What a run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The backend.
    pub backend: String,
    /// Every case that ran, in the kit's order.
    pub cases: Vec<CaseReport>,
}

/// What one case found.
#[derive(Clone, Debug)]
pub struct CaseReport {
    /// Its name.
    pub name: &'static str,
    /// What it found.
    pub outcome: Outcome,
    /// How long it took.
    pub duration: Duration,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The sentence holds.
    Passed,
    /// It does not, or a deviation is none any more.
    Failed(String),
    /// It can't be tested here.
    Skipped(String),
    /// It does not hold, as is known.
    Deviates(String),
}

impl Report {
    /// Whether nothing failed, and anything was tested at all.
    pub fn is_success(&self) -> bool {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_))) == 0
            && self.count(|outcome| *outcome == Outcome::Passed) > 0
    }

    /// How many cases match.
    pub fn count(&self, matches: impl Fn(&Outcome) -> bool) -> usize {
        self.cases.iter().filter(|case| matches(&case.outcome)).count()
    }

    /// The names of the cases that failed.
    pub fn failed(&self) -> Vec<&'static str> {
        let failed = self.cases.iter().filter(|case| matches!(case.outcome, Outcome::Failed(_)));
        failed.map(|case| case.name).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for CaseReport { name, outcome, .. } in &self.cases {
            match outcome {
                Outcome::Passed => writeln!(f, "{name} ... ok")?,
                Outcome::Failed(why) => writeln!(f, "{name} ... FAILED ({why})")?,
                Outcome::Skipped(why) => writeln!(f, "{name} ... skipped ({why})")?,
                Outcome::Deviates(why) => writeln!(f, "{name} ... deviates ({why})")?,
            }
        }
        let deviating = self.count(|outcome| matches!(outcome, Outcome::Deviates(_)));
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.count(|outcome| *outcome == Outcome::Passed),
            self.count(|outcome| matches!(outcome, Outcome::Failed(_))),
            self.count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        )?;
        if deviating > 0 {
            write!(f, ", {deviating} deviating")?;
        }
        Ok(())
    }
}
