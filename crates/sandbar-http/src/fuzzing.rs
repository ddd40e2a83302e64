//! What the fuzz targets run (decision 0009): each function takes any bytes and panics where a promise does not hold.

use std::time::{Duration, SystemTime};

use crate::redact::{EXCERPT, HIDDEN, Redactor};
use crate::{Secret, retry_after};

/// A `Retry-After`: a time, or none.
pub fn retry_after(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let waits = retry_after::parse(text, now);
    if let Ok(seconds) = text.parse::<u64>()
        && !text.starts_with('+')
    {
        assert_eq!(waits, Some(Duration::from_secs(seconds)));
    }
}

/// A body that an error shows the beginning of, after a credential and a line break: nothing of the credential is in it.
pub fn http_excerpt(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (Ok(secret), body) = (std::str::from_utf8(&data[..end]), &data[end + 1..]) else { return };
    let redactor = Redactor::new(&[Secret::from(secret)]);
    let excerpt = redactor.excerpt(body);
    assert!(excerpt.chars().count() <= EXCERPT + 1, "{excerpt:?}");
    assert!(!excerpt.contains(char::is_control), "{excerpt:?}");
    let is_plain = secret.len() >= crate::SHORTEST_SECRET
        && !secret.contains(|c: char| c.is_control() || c == '…' || c == ' ');
    assert!(!is_plain || excerpt.split(HIDDEN).all(|piece| !piece.contains(secret)), "{excerpt:?}");
}

#[cfg(test)]
mod tests {
    sandbar_replay::replay_tests!(retry_after, http_excerpt);
}
