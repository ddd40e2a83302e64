//! When a server says that one may come back.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};

/// How long `Retry-After` asks to wait, from its seconds or its date. A date counts from the answer's own `Date` where it has one, so that a
/// clock that is off does no harm. What is neither is as good as absent.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let sent = headers
        .get(DATE)
        .and_then(|date| date.to_str().ok())
        .and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    parse(value, sent.unwrap_or(now))
}

/// As [`retry_after`], for one value and the moment that a date counts from.
pub(crate) fn parse(value: &str, from: SystemTime) -> Option<Duration> {
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More seconds than fit are forever, not malformed.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(from).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_no_time_is_no_time() {
        for value in ["", " ", "-1", "+1", "1.5", "1e3", "soon", "Wed, 32 Oct 2015 07:28:00 GMT", "٣"] {
            assert_eq!(parse(value, at(0)), None, "{value:?}");
        }
    }

    #[test]
    fn more_seconds_than_fit_are_forever() {
        assert_eq!(parse("99999999999999999999999", at(0)), Some(Duration::from_secs(u64::MAX)));
    }

    #[test]
    fn a_date_counts_from_the_answers_own() {
        let mut headers = HeaderMap::new();
        let value = |time| HeaderValue::from_str(&httpdate::fmt_http_date(time)).unwrap();
        headers.insert(RETRY_AFTER, value(at(1_000_007)));
        assert_eq!(retry_after(&headers, at(1_000_000)), Some(Duration::from_secs(7)));
        headers.insert(DATE, value(at(1_000_005)));
        assert_eq!(retry_after(&headers, at(500)), Some(Duration::from_secs(2)));
    }

    proptest! {
        #[test]
        fn seconds_are_read_as_they_stand(seconds: u64, now in 0_u64..4_000_000_000) {
            prop_assert_eq!(parse(&seconds.to_string(), at(now)), Some(Duration::from_secs(seconds)));
        }

        #[test]
        fn a_date_is_as_far_as_it_is_ahead(ahead in 0_u64..100_000, now in 0_u64..4_000_000_000) {
            let date = httpdate::fmt_http_date(at(now + ahead));
            prop_assert_eq!(parse(&date, at(now)), Some(Duration::from_secs(ahead)));
            prop_assert_eq!(parse(&date, at(now + ahead + 5)), Some(Duration::ZERO));
        }

        #[test]
        fn any_text_is_a_time_or_none(text in any::<String>()) {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            prop_assert_eq!(parse(&text, at(0)).is_some(), digits || httpdate::parse_http_date(&text).is_ok());
        }
    }
}
