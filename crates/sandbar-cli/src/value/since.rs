use std::str::FromStr;

use jiff::Timestamp;

use crate::value::{HumanDuration, ValueError};

/// A moment of the past: a time in RFC 3339, or how long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since(pub(crate) Timestamp);

impl FromStr for Since {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Ok(at) = text.parse::<Timestamp>() {
            return Ok(Self(at));
        }
        let HumanDuration(ago) = text.parse().map_err(|why| {
            ValueError::new(format!("neither a time such as 2024-05-06T07:08:09Z nor how long ago: {why}"))
        })?;
        let at =
            Timestamp::now().checked_sub(ago).map_err(|_| ValueError::new("before the calendar begins"))?;
        Ok(Self(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_are_taken() {
        let at: Timestamp = "2024-05-06T07:08:09Z".parse().unwrap();
        assert_eq!("2024-05-06T07:08:09Z".parse(), Ok(Since(at)));
        let Since(ago) = "10m".parse().unwrap();
        let seconds = Timestamp::now().as_second() - ago.as_second();
        assert!((599..=660).contains(&seconds), "{seconds}");
        let error = "yesterday".parse::<Since>().unwrap_err().to_string();
        assert!(error.contains("how long ago"), "{error}");
    }
}
