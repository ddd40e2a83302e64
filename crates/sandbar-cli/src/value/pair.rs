use std::str::FromStr;

use crate::value::ValueError;

/// `KEY=VALUE`, split at the first `=`. What a key may be is checked where it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl FromStr for Pair {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (key, value) =
            text.split_once('=').ok_or_else(|| ValueError::new("no `=`: expected KEY=VALUE"))?;
        if key.is_empty() {
            return Err(ValueError::new("no key before `=`: expected KEY=VALUE"));
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_first_equals_sign_splits() {
        let pair: Pair = "a=b=c".parse().unwrap();
        assert_eq!((pair.key.as_str(), pair.value.as_str()), ("a", "b=c"));
        assert_eq!("a=".parse::<Pair>().unwrap().value, "");
    }

    #[test]
    fn a_key_and_an_equals_sign_are_needed() {
        assert!("a".parse::<Pair>().unwrap_err().to_string().contains("no `=`"));
        assert!("=b".parse::<Pair>().unwrap_err().to_string().contains("no key"));
        assert!("".parse::<Pair>().is_err());
    }

    proptest! {
        #[test]
        fn pairs_come_back(key in "[^=]{1,20}", value in ".{0,20}") {
            let pair: Pair = format!("{key}={value}").parse().unwrap();
            prop_assert_eq!(pair, Pair { key, value });
        }
    }
}
