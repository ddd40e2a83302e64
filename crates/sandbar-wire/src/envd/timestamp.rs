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

impl Timestamp {
    /// Reads RFC 3339 with any offset; `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, rest) = text.split_at_checked(10)?;
        let mut numbers = date.split('-').map(digits);
        let (year, month, day) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
        let mut numbers = time.split(':').map(digits);
        let (hour, minute, second) = (numbers.next()??, numbers.next()??, numbers.next()??);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let (nanos, rest) = match rest.strip_prefix('.') {
            Some(rest) => {
                let end = rest.find(|c: char| !c.is_ascii_digit())?;
                let fraction: String = rest[..end].chars().chain("000000000".chars()).take(9).collect();
                (fraction.parse().ok()?, &rest[end..])
            }
            None => (0, rest),
        };
        let offset = match rest {
            "Z" | "z" => 0,
            _ => {
                let (sign, rest) = rest.split_at_checked(1)?;
                let (hours, minutes) = rest.split_once(':')?;
                let seconds = digits(hours)? * 3600 + digits(minutes)? * 60;
                match sign {
                    "+" => seconds,
                    "-" => -seconds,
                    _ => return None,
                }
            }
        };
        let seconds = days_from_civil(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
        Some(Self { seconds, nanos })
    }
}

fn digits(text: &str) -> Option<i64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
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

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.seconds.div_euclid(DAY));
        let second = self.seconds.rem_euclid(DAY);
        write!(f, "{year:04}-{month:02}-{day:02}")?;
        write!(f, "T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)?;
        if self.nanos != 0 {
            write!(f, ".{:09}", self.nanos)?;
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
            "é026-01-01T",
        ] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(seconds in 0i64..253_402_300_799, nanos in 0u32..1_000_000_000) {
            let moment = Timestamp { seconds, nanos };
            prop_assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment));
        }

        #[test]
        fn any_text_is_safe(text in "\\PC{0,40}") {
            let _ = Timestamp::parse(&text);
        }
    }
}
