use std::str::FromStr;

use sandbar::DeadlineAction;

use crate::value::ValueError;

/// What to do at a deadline, as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnTimeoutArg(pub(crate) DeadlineAction);

impl FromStr for OnTimeoutArg {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "destroy" => Ok(Self(DeadlineAction::Destroy)),
            "pause" => Ok(Self(DeadlineAction::Pause)),
            _ => Err(ValueError::new("expected `destroy` or `pause`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_two_words() {
        assert_eq!("pause".parse(), Ok(OnTimeoutArg(DeadlineAction::Pause)));
        assert_eq!("destroy".parse(), Ok(OnTimeoutArg(DeadlineAction::Destroy)));
        for text in ["", "Pause", "stop", "pause "] {
            assert!(text.parse::<OnTimeoutArg>().is_err(), "{text}");
        }
    }
}
