use std::fmt::Write as _;

use sandbar::observe::{Event, Outcome, Phase};
use serde_json::Value;

use crate::output::escape;
use crate::output::time::rfc3339;

/// An event as one line for a person: when, which sandbox, what, how it ended, and the rest.
pub(crate) fn audit_text(event: &Event) -> String {
    let sandbox = event.sandbox.as_ref().map_or("-", |id| id.as_str());
    let state = match (event.phase, event.outcome) {
        (Phase::Begin, _) => "begin",
        (Phase::Note, None) => "note",
        (_, Some(Outcome::Ok)) => "ok",
        (_, Some(Outcome::Error)) => "error",
        (_, Some(Outcome::Unknown) | None) => "unknown",
    };
    let mut text = format!("{} {sandbox} {} {state}", rfc3339(event.at), escape(&event.op));
    // Writing to a string can't fail.
    if let Some(error) = &event.error {
        let _ = write!(text, " {}", escape(error));
    }
    if let Some(duration) = event.duration {
        let _ = write!(text, " {duration:.3}s");
    }
    for (key, value) in &event.detail {
        let _ = write!(text, " {}={}", escape(key), escape(&short(value)));
    }
    let _ = write!(text, " uid={} pid={}", event.actor.uid, event.actor.pid);
    if let Some(name) = &event.actor.name {
        let _ = write!(text, " actor={}", escape(&quoted(name)));
    }
    text
}

/// A value in as few characters as are clear.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        value => value.to_string(),
    }
}

/// Text as it is where it can be nothing else.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use sandbar::observe::{Actor, Role};

    use super::*;

    #[test]
    fn a_line_can_not_be_forged_by_what_is_in_it() {
        let mut event =
            Event::note("read", "local", Actor { pid: 7, uid: 0, role: Role::Caller, name: None })
                .with_detail("path", "/tmp/x ok uid=1\n\x1b[2J\u{202e}");
        event.at = jiff::Timestamp::UNIX_EPOCH;
        assert_eq!(
            audit_text(&event),
            "1970-01-01T00:00:00.000Z - read note path=\"/tmp/x ok uid=1\\n\\u001b[2J\\u{202e}\" uid=0 pid=7"
        );
    }
}
