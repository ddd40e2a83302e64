use std::str::FromStr;

use crate::value::ValueError;

/// How many of something to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) usize);

impl FromStr for Count {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        // `usize::from_str` takes a leading `+`.
        let number = if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None };
        number.map(Self).ok_or_else(|| ValueError::new("expected a number, such as 20"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_is_one() {
        assert_eq!("0".parse(), Ok(Count(0)));
        assert_eq!("20".parse(), Ok(Count(20)));
        for text in ["", "abc", "-1", "+1", "1k", "99999999999999999999999"] {
            let error = text.parse::<Count>().unwrap_err().to_string();
            assert!(error.contains("such as 20"), "{text}: {error}");
        }
    }
}
