use std::collections::BTreeSet;
use std::fmt;

/// Most entries, by the specification.
const MAX_ENTRIES: usize = 32;
/// Most bytes passed on: what the specification asks everybody to pass on at least.
const MAX_BYTES: usize = 512;
/// Longest text looked at: 32 entries of the longest key and value, with their separators and some blanks.
const MAX_TEXT: usize = 32 * 1024;
/// Entries longer than this go first where not all fit, as the specification recommends.
const LONG_ENTRY: usize = 128;
/// Longest key.
const MAX_KEY: usize = 256;
/// Longest value.
const MAX_VALUE: usize = 256;

/// What vendors pass along in `tracestate`: at most 512 bytes, whole entries only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceState(String);

impl TraceState {
    /// Checks it, and drops what is beyond the bound; `None` where it is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let mut keys = BTreeSet::new();
        let mut entries = Vec::new();
        for entry in
            text.split(',').map(|entry| entry.trim_matches([' ', '\t'])).filter(|entry| !entry.is_empty())
        {
            let (key, value) = entry.split_once('=')?;
            if !is_key(key) || !is_value(value) || !keys.insert(key) {
                return None;
            }
            entries.push(entry);
        }
        if entries.len() > MAX_ENTRIES {
            return None;
        }
        while length(&entries) > MAX_BYTES {
            // From the right, long ones first: the latest writers stand on the left.
            let victim = entries.iter().rposition(|entry| entry.len() > LONG_ENTRY);
            entries.remove(victim.unwrap_or(entries.len() - 1));
        }
        Some(Self(entries.join(",")))
    }

    /// The text to pass on.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing to pass on.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for TraceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn length(entries: &[&str]) -> usize {
    entries.iter().map(|entry| entry.len() + 1).sum::<usize>().saturating_sub(1)
}

fn is_key(key: &str) -> bool {
    let rest = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'*' | b'/' | b'@')
    };
    let first = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    key.len() <= MAX_KEY
        && key.as_bytes().first().is_some_and(first)
        && key.bytes().all(rest)
        && key.bytes().filter(|byte| *byte == b'@').count() <= 1
}

fn is_value(value: &str) -> bool {
    let good = |byte: u8| matches!(byte, 0x20..=0x7e) && byte != b',' && byte != b'=';
    !value.is_empty() && value.len() <= MAX_VALUE && value.bytes().all(good)
}
