use std::str::FromStr;

use crate::value::ValueError;

/// A port inside a sandbox, 1 to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port(pub(crate) u16);

impl FromStr for Port {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        // `u16::from_str` takes a leading `+`.
        let number = if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None };
        match number {
            Some(port) if port != 0 => Ok(Self(port)),
            _ => Err(ValueError::new("not a port: expected a number from 1 to 65535")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn out_of_range_and_not_a_number_are_refused() {
        for text in ["", "0", "65536", "-1", "+1", "http", "80/tcp", " 80", "99999999999999999999"] {
            assert!(text.parse::<Port>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_port_comes_back(port in 1..=u16::MAX) {
            prop_assert_eq!(port.to_string().parse(), Ok(Port(port)));
        }
    }
}
