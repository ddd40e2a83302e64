use jiff::Timestamp;

/// A time in JSON: RFC 3339 in UTC with milliseconds.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    // The precision cuts, so a time never appears to be later than it is.
    format!("{time:.3}")
}

/// How far `time` is from `now`, for a person, in its largest unit, such as `5m`.
pub(super) fn distance(time: Timestamp, now: Timestamp) -> String {
    let seconds = (time.as_second() - now.as_second()).unsigned_abs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_z() {
        let time: Timestamp = "2024-05-06T07:08:09.9999Z".parse().unwrap();
        assert_eq!(rfc3339(time), "2024-05-06T07:08:09.999Z");
        let time: Timestamp = "2024-05-06T07:08:09Z".parse().unwrap();
        assert_eq!(rfc3339(time), "2024-05-06T07:08:09.000Z");
    }

    #[test]
    fn distances_have_one_unit() {
        let now: Timestamp = "2024-05-06T07:08:09Z".parse().unwrap();
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (172_800, "2d")] {
            let later = Timestamp::from_second(now.as_second() + seconds).unwrap();
            assert_eq!(distance(later, now), text);
            assert_eq!(distance(now, later), text);
        }
    }
}
