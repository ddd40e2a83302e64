use std::str::FromStr;

use sandbar::State;

use crate::value::ValueError;

/// A state by its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateArg(pub(crate) State);

const STATES: [State; 5] =
    [State::Creating, State::Running, State::Sleeping, State::Stopped, State::Destroying];

impl FromStr for StateArg {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        STATES.into_iter().find(|state| state.as_str() == text).map(Self).ok_or_else(|| {
            let words: Vec<_> = STATES.iter().map(|state| state.as_str()).collect();
            ValueError::new(format!("not a state: expected one of {}", words.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_word_and_nothing_else_does() {
        for state in STATES {
            assert_eq!(state.as_str().parse(), Ok(StateArg(state)));
        }
        let error = "paused".parse::<StateArg>().unwrap_err().to_string();
        assert!(error.contains("creating, running, sleeping, stopped, destroying"), "{error}");
    }
}
