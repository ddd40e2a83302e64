use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment in UTC, on the wire as RFC 3339.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 1,000,000,000.
    pub nanos: u32,
}

const DAY: i64 = 86_400;

/// The years that RFC 3339 can say, 1 to 9999, which are also those of the protocol's messages.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;
const MAX_NANOS: u32 = 999_999_999;

impl Timestamp {
    /// Reads RFC 3339 with any offset; `None` for other text, and for moments outside of the years 1 to 9999.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, rest) = text.split_at_checked(10)?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let days = days_from_civil(year, month, day);
        if civil_from_days(days) != (year, month, day) {
            return None;
        }
        let (nanos, rest) = match rest.strip_prefix('.') {
            Some(rest) => {
                let end = rest.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
                let fraction: String = rest[..end].chars().chain("000000000".chars()).take(9).collect();
                (fraction.parse().ok()?, &rest[end..])
            }
            None => (0, rest),
        };
        let offset = match rest {
            "Z" | "z" => 0,
            _ => {
                let (sign, rest) = rest.split_at_checked(1)?;
                let [hours, minutes] = numbers(rest, ':', [2, 2])?;
                if hours > 23 || minutes > 59 {
                    return None;
                }
                let seconds = hours * 3600 + minutes * 60;
                match sign {
                    "+" => seconds,
                    "-" => -seconds,
                    _ => return None,
                }
            }
        };
        let seconds = days * DAY + hour * 3600 + minute * 60 + second - offset;
        (FIRST..=LAST).contains(&seconds).then_some(Self { seconds, nanos })
    }

    /// The nearest moment that can be written: files may have times that nothing can say.
    fn sayable(self) -> Self {
        if self.seconds < FIRST {
            Self { seconds: FIRST, nanos: 0 }
        } else if self.seconds > LAST {
            Self { seconds: LAST, nanos: MAX_NANOS }
        } else {
            Self { nanos: self.nanos.min(MAX_NANOS), ..self }
        }
    }
}

/// Numbers of just so many digits, separated.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Days since 1970 of a date of the Gregorian calendar; eras of 400 years start in March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

/// A moment that RFC 3339 can't say is written as the nearest that it can.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, nanos } = self.sayable();
        let (year, month, day) = civil_from_days(seconds.div_euclid(DAY));
        let second = seconds.rem_euclid(DAY);
        write!(f, "{year:04}-{month:02}-{day:02}")?;
        write!(f, "T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)?;
        if nanos != 0 {
            write!(f, ".{nanos:09}")?;
        }
        f.write_str("Z")
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not a time of RFC 3339"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_moments() {
        assert_eq!(Timestamp { seconds: 1_767_225_600, nanos: 0 }.to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(
            Timestamp { seconds: 951_782_400, nanos: 5 }.to_string(),
            "2000-02-29T00:00:00.000000005Z"
        );
        let zoned = Timestamp::parse("2026-01-01T02:00:00.5+02:00").unwrap();
        assert_eq!(zoned, Timestamp { seconds: 1_767_225_600, nanos: 500_000_000 });
        for bad in [
            "",
            "2026",
            "2026-13-01T00:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.5",
            "2026-01-01T00:00:00.Z",
            "2026-02-30T00:00:00Z",
            "2026-1-001T00:00:00Z",
            "2026-01-01-T00:00:00Z",
            "2026-01-01T00:00:00+9223372036854775807:00",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+1:0",
            "0000-12-31T23:59:59Z",
            "9999-12-31T23:59:59-00:01",
            "é026-01-01T",
        ] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_can_not_be_said_is_the_nearest_that_can() {
        let shown = |seconds, nanos| Timestamp { seconds, nanos }.to_string();
        assert_eq!(shown(i64::MIN, 7), "0001-01-01T00:00:00Z");
        assert_eq!(shown(i64::MAX, 7), "9999-12-31T23:59:59.999999999Z");
        assert_eq!(shown(0, u32::MAX), "1970-01-01T00:00:00.999999999Z");
        assert_eq!(shown(-1, 0), "1969-12-31T23:59:59Z");
    }

    proptest! {
        #[test]
        fn any_moment_can_be_read_again(seconds in any::<i64>(), nanos in any::<u32>()) {
            let moment = Timestamp { seconds, nanos };
            prop_assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment.sayable()));
        }

        #[test]
        fn text_round_trips(seconds in FIRST..=LAST, nanos in 0u32..1_000_000_000) {
            let moment = Timestamp { seconds, nanos };
            prop_assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment));
        }

        #[test]
        fn any_text_is_safe(text in "\\PC{0,40}") {
            let _ = Timestamp::parse(&text);
        }
    }
}
