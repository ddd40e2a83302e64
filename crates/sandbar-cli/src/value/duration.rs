use std::str::FromStr;
use std::time::Duration;

use crate::value::ValueError;

/// A duration: `500ms`, `30s`, `1h30m`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HumanDuration(pub(crate) Duration);

const EXPECTED: &str = "expected numbers with d, h, m, s, ms, largest first, such as 30s or 1h30m";
/// The longest one taken: 100 years keeps every sum with a time of today within what clocks and RFC 3339 can say.
const MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Units, largest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl FromStr for HumanDuration {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let too_long = || ValueError::new("longer than 100 years");
        let mut rest = text;
        let mut next_unit = 0;
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, after) = rest.split_at(digits);
            let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
            let (unit, after) = after.split_at(letters);
            if number.is_empty() {
                return Err(ValueError::new(format!(
                    "no number before `{}`: {EXPECTED}",
                    unit.escape_debug()
                )));
            }
            if unit.is_empty() {
                return Err(ValueError::new(format!("no unit after `{number}`: {EXPECTED}")));
            }
            let index = UNITS.iter().position(|(name, _)| *name == unit).ok_or_else(|| {
                ValueError::new(format!("unknown unit `{}`: {EXPECTED}", unit.escape_debug()))
            })?;
            if index < next_unit {
                return Err(ValueError::new(format!("`{unit}` is out of order: {EXPECTED}")));
            }
            next_unit = index + 1;
            let number: u64 = number.parse().map_err(|_| too_long())?;
            let millis = number.checked_mul(UNITS[index].1).ok_or_else(too_long)?;
            total = total.checked_add(millis).ok_or_else(too_long)?;
            rest = after;
        }
        if text.is_empty() {
            return Err(ValueError::new(format!("it is empty: {EXPECTED}")));
        }
        let duration = Duration::from_millis(total);
        if duration > MAX {
            return Err(too_long());
        }
        if duration.is_zero() {
            return Err(ValueError::new("0 is not valid here: expected a positive duration"));
        }
        Ok(Self(duration))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_add_up() {
        for (text, millis) in [
            ("1ms", 1),
            ("500ms", 500),
            ("30s", 30_000),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("90m", 5_400_000),
        ] {
            assert_eq!(text.parse(), Ok(HumanDuration(Duration::from_millis(millis))), "{text}");
        }
    }

    #[test]
    fn the_rest_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "empty"),
            ("30", "no unit after `30`"),
            ("1h30", "no unit after `30`"),
            ("s", "no number before `s`"),
            ("-1s", "no number before `-`"),
            ("1.5s", "unknown unit `.`"),
            ("1w", "unknown unit `w`"),
            ("1S", "unknown unit `S`"),
            ("1 s", "unknown unit ` s`"),
            ("30m1h", "out of order"),
            ("1s1s", "out of order"),
            ("0s", "positive"),
            ("36501d", "100 years"),
            ("99999999999999999999d", "100 years"),
        ] {
            let error = text.parse::<HumanDuration>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_duration_or_an_error(text in ".{0,40}") {
            let _ = text.parse::<HumanDuration>();
        }

        #[test]
        fn seconds_and_milliseconds_come_back(s in 1..100_000_u64, ms in 0..1000_u64) {
            let parsed: HumanDuration = format!("{s}s{ms}ms").parse().unwrap();
            prop_assert_eq!(parsed.0, Duration::from_millis(s * 1000 + ms));
        }
    }
}
