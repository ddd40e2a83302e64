use std::str::FromStr;

use sandbar::RestartPolicy;

use crate::value::ValueError;

/// What to do when a main command ends, by its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RestartArg(pub(crate) RestartPolicy);

const POLICIES: [(&str, RestartPolicy); 3] =
    [("no", RestartPolicy::No), ("on-failure", RestartPolicy::OnFailure), ("always", RestartPolicy::Always)];

impl FromStr for RestartArg {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        POLICIES.iter().find(|(word, _)| *word == text).map(|(_, policy)| Self(*policy)).ok_or_else(|| {
            let words = POLICIES.map(|(word, _)| word).join(", ");
            ValueError::new(format!("not a restart policy: expected one of {words}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_its_word_and_nothing_else_does() {
        for (word, policy) in POLICIES {
            assert_eq!(word.parse(), Ok(RestartArg(policy)));
        }
        assert!(
            "On-Failure".parse::<RestartArg>().unwrap_err().to_string().contains("no, on-failure, always")
        );
    }
}
