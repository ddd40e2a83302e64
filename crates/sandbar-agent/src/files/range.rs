use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{self, HeaderMap, HeaderName};

/// What identifies a state of a file to caches.
pub(super) struct Version {
    pub(super) etag: String,
    pub(super) modified: SystemTime,
}

impl Version {
    pub(super) fn new(modified_secs: i64, modified_nanos: i64, size: u64) -> Self {
        let secs = u64::try_from(modified_secs).unwrap_or(0);
        Self {
            etag: format!("\"{modified_secs:x}.{modified_nanos:x}-{size:x}\""),
            modified: UNIX_EPOCH + Duration::from_secs(secs),
        }
    }

    fn matches(&self, list: &str) -> bool {
        list.split(',')
            .map(|tag| tag.trim().trim_start_matches("W/"))
            .any(|tag| tag == "*" || tag == self.etag)
    }
}

/// What conditional headers demand instead of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Instead {
    NotModified,
    PreconditionFailed,
}

const CONDITIONS: [HeaderName; 5] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
];

/// Whether the request asks for a part or under a condition; such answers are never compressed.
pub(super) fn is_partial(headers: &HeaderMap) -> bool {
    headers.contains_key(header::RANGE) || CONDITIONS.iter().any(|name| headers.contains_key(name))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

/// Evaluates conditions in the order of RFC 9110, 13.2.2.
pub(super) fn condition(headers: &HeaderMap, version: &Version) -> Option<Instead> {
    if let Some(tags) = text(headers, header::IF_MATCH) {
        if !version.matches(tags) {
            return Some(Instead::PreconditionFailed);
        }
    } else if date(headers, header::IF_UNMODIFIED_SINCE).is_some_and(|since| version.modified > since) {
        return Some(Instead::PreconditionFailed);
    }
    if let Some(tags) = text(headers, header::IF_NONE_MATCH) {
        return version.matches(tags).then_some(Instead::NotModified);
    }
    let since = date(headers, header::IF_MODIFIED_SINCE)?;
    (version.modified <= since).then_some(Instead::NotModified)
}

/// The part of a file that is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    /// First byte, and how many.
    Bytes(u64, u64),
    Unsatisfiable,
}

/// Reads `Range`. Several ranges, other units and what is malformed mean the whole file, which is always allowed.
pub(super) fn part(headers: &HeaderMap, version: &Version, size: u64) -> Part {
    let Some(spec) = text(headers, header::RANGE).and_then(|value| value.trim().strip_prefix("bytes="))
    else {
        return Part::Whole;
    };
    if let Some(condition) = text(headers, header::IF_RANGE) {
        let same = if condition.starts_with('"') {
            condition == version.etag
        } else {
            httpdate::parse_http_date(condition).is_ok_and(|date| date == version.modified)
        };
        if !same {
            return Part::Whole;
        }
    }
    let Some((first, last)) = spec.trim().split_once('-') else { return Part::Whole };
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    match (first.trim(), last.trim()) {
        ("", last) => match number(last) {
            Some(0) => Part::Unsatisfiable,
            Some(_) if size == 0 => Part::Unsatisfiable,
            Some(count) => Part::Bytes(size - count.min(size), count.min(size)),
            None => Part::Whole,
        },
        (first, "") => match number(first) {
            Some(first) if first < size => Part::Bytes(first, size - first),
            Some(_) => Part::Unsatisfiable,
            None => Part::Whole,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first > last => Part::Whole,
            (Some(first), Some(_)) if first >= size => Part::Unsatisfiable,
            (Some(first), Some(last)) => Part::Bytes(first, last.min(size - 1) - first + 1),
            _ => Part::Whole,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    fn of(range: &str, size: u64) -> Part {
        part(&headers(&[(header::RANGE, range)]), &Version::new(0, 0, size), size)
    }

    #[test]
    fn ranges() {
        assert_eq!(of("bytes=0-3", 10), Part::Bytes(0, 4));
        assert_eq!(of("bytes=7-", 10), Part::Bytes(7, 3));
        assert_eq!(of("bytes=-3", 10), Part::Bytes(7, 3));
        assert_eq!(of("bytes=-30", 10), Part::Bytes(0, 10));
        assert_eq!(of("bytes=5-99", 10), Part::Bytes(5, 5));
        for (range, size) in [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=-1", 0), ("bytes=0-0", 0)] {
            assert_eq!(of(range, size), Part::Unsatisfiable, "{range}");
        }
        for range in ["bytes=0-1,3-4", "lines=0-1", "bytes=x-", "bytes=5-2", "bytes=", "bytes=--1"] {
            assert_eq!(of(range, 10), Part::Whole, "{range}");
        }
    }

    #[test]
    fn conditions() {
        let version = Version::new(1_700_000_000, 5, 10);
        let at = httpdate::fmt_http_date(version.modified);
        let check = |name: HeaderName, value: &str| condition(&headers(&[(name, value)]), &version);
        assert_eq!(check(header::IF_NONE_MATCH, &version.etag), Some(Instead::NotModified));
        assert_eq!(check(header::IF_NONE_MATCH, "\"x\""), None);
        assert_eq!(check(header::IF_MATCH, "\"x\""), Some(Instead::PreconditionFailed));
        assert_eq!(check(header::IF_MODIFIED_SINCE, &at), Some(Instead::NotModified));
        assert_eq!(check(header::IF_UNMODIFIED_SINCE, &at), None);
        let stale = headers(&[(header::RANGE, "bytes=0-1"), (header::IF_RANGE, "\"x\"")]);
        assert_eq!(part(&stale, &version, 10), Part::Whole);
    }

    proptest! {
        #[test]
        fn parts_are_inside(text in "bytes=[0-9]{0,22}-[0-9]{0,22}", size in any::<u64>()) {
            if let Part::Bytes(first, count) = of(&text, size) {
                prop_assert!(count > 0 && first.checked_add(count).is_some_and(|end| end <= size));
            }
        }
    }
}
