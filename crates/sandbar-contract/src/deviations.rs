use std::fmt;

/// What a backend is known to do otherwise than the contract says.
///
/// A text file, one deviation a line: the backend's name, the case's name, and the reason, separated by blanks. Empty lines and lines that
/// start with `#` do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deviations(Vec<Deviation>);

/// One deviation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// Of which backend.
    pub backend: String,
    /// In which case.
    pub case: String,
    /// Why.
    pub reason: String,
}

/// A line that is not a deviation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedDeviation {
    /// The line's number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl fmt::Display for MalformedDeviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deviations, line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for MalformedDeviation {}

impl Deviations {
    /// No deviations.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads the text of a file. A line without a reason, or with a case that does not exist, is an error.
    pub fn parse(text: &str) -> Result<Self, MalformedDeviation> {
        let known = crate::cases();
        let mut deviations = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let complain = |problem| Err(MalformedDeviation { line: number + 1, problem });
            let Some((backend, rest)) = line.split_once(char::is_whitespace) else {
                return complain("expected a backend, a case and a reason");
            };
            let Some((case, reason)) = rest.trim_start().split_once(char::is_whitespace) else {
                return complain("the reason is missing");
            };
            if !known.iter().any(|one| one.name == case) {
                return complain("there is no such case");
            }
            deviations.push(Deviation {
                backend: backend.to_owned(),
                case: case.to_owned(),
                reason: reason.trim().to_owned(),
            });
        }
        Ok(Self(deviations))
    }

    /// Why `backend` deviates in `case`.
    pub fn reason(&self, backend: &str, case: &str) -> Option<&str> {
        self.0.iter().find(|one| one.backend == backend && one.case == case).map(|one| one.reason.as_str())
    }
}
