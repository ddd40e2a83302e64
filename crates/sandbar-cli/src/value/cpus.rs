use std::str::FromStr;

use crate::value::ValueError;

/// Processor time in thousandths of a core, typed in cores: `1`, `0.5`, `2.25`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) u32);

const EXPECTED: &str = "expected cores with at most three digits after the point, such as 2 or 0.5";
/// More cores than Linux can be built for (`NR_CPUS` is at most 8192 on x86-64).
const MAX_CORES: u32 = 8192;
/// The least: the kernel counts a quota in periods of 100 ms and takes none under 1 ms (`min_cfs_quota_period`, kernel/sched/core.c).
const MIN_MILLIS: u32 = 10;

impl FromStr for Cpus {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let malformed = || ValueError::new(format!("not a number of cores: {EXPECTED}"));
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 3 {
            return Err(malformed());
        }
        let whole: u32 = whole
            .parse()
            .ok()
            .filter(|cores| *cores < MAX_CORES)
            .ok_or_else(|| ValueError::new(format!("more than {} cores: {EXPECTED}", MAX_CORES - 1)))?;
        let millis: u32 = format!("{decimals:0<3}").parse().map_err(|_| malformed())?;
        match whole * 1000 + millis {
            0 => Err(ValueError::new(format!("0 is not valid here: {EXPECTED}"))),
            millis if millis < MIN_MILLIS => {
                Err(ValueError::new("less than 0.01 cores: the kernel keeps no smaller share"))
            }
            millis => Ok(Self(millis)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cores_become_thousandths() {
        for (text, millis) in [("1", 1000), ("0.5", 500), ("2.25", 2250), ("0.01", 10), ("16", 16_000)] {
            assert_eq!(text.parse(), Ok(Cpus(millis)), "{text}");
        }
    }

    #[test]
    fn the_rest_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "not a number"),
            (".5", "not a number"),
            ("1.", "not a number"),
            ("0.0005", "not a number"),
            ("-1", "not a number"),
            ("1e3", "not a number"),
            ("two", "not a number"),
            ("0", "0 is not valid"),
            ("0.000", "0 is not valid"),
            ("0.009", "less than 0.01"),
            ("8192", "more than"),
            ("99999999999", "more than"),
        ] {
            let error = text.parse::<Cpus>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_number_or_an_error(text in ".{0,20}") {
            let _ = text.parse::<Cpus>();
        }

        #[test]
        fn thousandths_come_back(millis in MIN_MILLIS..8_000_000_u32) {
            prop_assert_eq!(format!("{}.{:03}", millis / 1000, millis % 1000).parse(), Ok(Cpus(millis)));
        }
    }
}
