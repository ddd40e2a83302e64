use std::str::FromStr;

use crate::value::ValueError;

/// A size in bytes: `4096`, `512M`, `1.5GiB`. Units are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

const EXPECTED: &str = "expected bytes, or a number with K, M, G, T (or KiB, MiB, GiB, TiB)";
/// Digits kept after the point; more would be less than a byte for every unit people use.
const MAX_DECIMALS: usize = 6;

impl FromStr for Size {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let shift = match unit {
            "" => 0,
            "K" | "k" | "KiB" => 10,
            "M" | "m" | "MiB" => 20,
            "G" | "g" | "GiB" => 30,
            "T" | "t" | "TiB" => 40,
            _ => return Err(ValueError::new(format!("unknown unit `{}`: {EXPECTED}", unit.escape_debug()))),
        };
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(decimals) || number.ends_with('.') {
            return Err(ValueError::new(format!("no number: {EXPECTED}")));
        }
        if decimals.len() > MAX_DECIMALS || (shift == 0 && !decimals.is_empty()) {
            return Err(ValueError::new(format!("too many digits after the point: {EXPECTED}")));
        }
        let too_large = || ValueError::new("larger than 2^64 - 1 bytes");
        let scale = 10_u128.pow(u32::try_from(decimals.len()).unwrap_or(0));
        let scaled: u128 = format!("{whole}{decimals}").parse().map_err(|_| too_large())?;
        let bytes = scaled.checked_mul(1 << shift).ok_or_else(too_large)? / scale;
        let bytes = u64::try_from(bytes).map_err(|_| too_large())?;
        if bytes == 0 {
            return Err(ValueError::new("0 is not valid here: expected a positive size"));
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("1K", 1024),
            ("512M", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("2T", 2 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn the_rest_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "no number"),
            ("M", "no number"),
            ("1.M", "no number"),
            ("1..2M", "no number"),
            ("-1", "unknown unit `-1`"),
            ("12q", "unknown unit `q`"),
            ("1KB", "unknown unit `KB`"),
            ("1 M", "unknown unit ` M`"),
            ("1.5", "too many digits"),
            ("0", "positive"),
            ("0.0M", "positive"),
            ("18446744073709551616", "larger than"),
            ("99999999999999999999999999999999999999999999T", "larger than"),
        ] {
            let error = text.parse::<Size>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_size_or_an_error(text in ".{0,40}") {
            let _ = text.parse::<Size>();
        }

        #[test]
        fn whole_numbers_come_back(bytes in 1..=u64::MAX) {
            prop_assert_eq!(bytes.to_string().parse(), Ok(Size(bytes)));
        }

        #[test]
        fn units_multiply(number in 1..(1_u64 << 24)) {
            prop_assert_eq!(format!("{number}G").parse(), Ok(Size(number << 30)));
        }
    }
}
