//! What of a text may be shown.
//!
//! Two kinds are taken out: credentials that are known, in each form that they travel in, and what by its name is one (a token that a server
//! just made is known to nobody else). All of it is found in the original text first, and taken out in one go: pieces that overlap would
//! otherwise leave a rest of one behind.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use regex::Regex;

use crate::Secret;

/// Most characters of a body that an error shows.
pub const EXCERPT: usize = 200;

/// What stands in the place of a credential.
pub const HIDDEN: &str = "[hidden]";

/// Shortest text, in bytes, that counts as a credential: a shorter one can be guessed, and is part of too many words.
pub const SHORTEST_SECRET: usize = 4;

static BY_NAME: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // A member of a JSON object, also one that is cut off or stands in a text itself.
        r#""[^"\\]*(?i-u:token|secret|passw|signature|cookie|credential|authorization|(?:api|access|private)[_-]?key)[^"\\]*\\*"[ \t\r\n]*:[ \t\r\n]*\\*"((?:[^"\\]|\\.)*)"#,
        // A value of a query.
        r#"[?&][^=&"]*(?i-u:token|sig|secret|key|credential|password)[^=&"]*=([^&"<>#\\`\x00-\x20]+)"#,
        // The value of a header.
        r"(?i-u:bearer|basic|flyv1) +([A-Za-z0-9._~+/=,-]+)",
    ]
    .iter()
    .map(|pattern| Regex::new(pattern).expect("the pattern is one"))
    .collect()
});

/// Knows the credentials of a client and of a call.
#[derive(Clone, Default)]
pub(crate) struct Redactor(Arc<[String]>);

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} forms)", self.0.len())
    }
}

impl Redactor {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        Self::default().with(secrets)
    }

    /// One that knows these as well.
    pub(crate) fn with<'a>(&self, secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut forms = self.0.to_vec();
        for secret in secrets {
            for form in forms_of(secret.expose()) {
                if form.len() >= SHORTEST_SECRET && !forms.contains(&form) {
                    forms.push(form);
                }
            }
        }
        if forms.len() == self.0.len() { self.clone() } else { Self(forms.into()) }
    }

    /// The text without credentials.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut found = Vec::new();
        for form in self.0.iter() {
            found.extend(occurrences(text, form));
        }
        for pattern in BY_NAME.iter() {
            found.extend(pattern.captures_iter(text).filter_map(|found| Some(found.get(1)?.range())));
        }
        take_out(text, found)
    }

    /// The beginning of a body on one line without credentials, at most [`EXCERPT`] characters.
    pub(crate) fn excerpt(&self, body: &[u8]) -> String {
        let text = self.text(&String::from_utf8_lossy(body));
        let mut characters = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut shown: String = characters.by_ref().take(EXCERPT).collect();
        if characters.next().is_some() {
            shown.push('…');
        }
        shown
    }
}

/// A credential as it stands, as part of an address, of JSON, of JSON that is a text in JSON, and of basic authentication.
fn forms_of(secret: &str) -> [String; 5] {
    let once = in_json(secret);
    [
        secret.to_owned(),
        utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
        STANDARD.encode(secret),
        in_json(&once),
        once,
    ]
}

fn in_json(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned()
}

/// Every place of `form`, also those that overlap.
fn occurrences(text: &str, form: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(form) {
        let start = from + at;
        found.push(start..start + form.len());
        from = start + text[start..].chars().next().map_or(1, char::len_utf8);
    }
    found
}

fn take_out(text: &str, mut found: Vec<Range<usize>>) -> String {
    found.retain(|range| !range.is_empty());
    found.sort_by_key(|range| range.start);
    let mut shown = String::with_capacity(text.len());
    let mut end = 0;
    for range in found {
        if range.start >= end {
            shown.push_str(&text[end..range.start]);
            shown.push_str(HIDDEN);
        }
        end = end.max(range.end);
    }
    shown.push_str(&text[end..]);
    shown
}

#[cfg(test)]
mod tests;
