use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use sandbar::{Decision, DecisionKind, DecisionReason, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::output::escape;
use crate::output::time::rfc3339;

/// The word for a verdict, as in JSON.
pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allowed => "allowed",
        Verdict::Denied => "denied",
        Verdict::Failed => "failed",
        Verdict::Closed => "closed",
    }
}

/// A decision as one line for a person: when, how, about what, whom, why, and the rest. Names come from inside and are hostile.
pub(crate) fn decision_text(decision: &Decision) -> String {
    let Decision {
        at,
        kind,
        verdict,
        reason,
        name,
        address,
        port,
        rule,
        detail,
        bytes_out,
        bytes_in,
        repeated,
    } = decision;
    let kind = match kind {
        DecisionKind::Dns => "dns",
        DecisionKind::Tcp => "tcp",
        DecisionKind::Http => "http",
        DecisionKind::Udp => "udp",
        DecisionKind::Policy => "policy",
    };
    let peer = peer(name.as_deref(), *address, *port);
    let mut text =
        format!("{} {:<7} {kind:<6} {peer} {}", rfc3339(*at), verdict_word(*verdict), reason.sentence());
    // Writing to a string can't fail.
    if let (Some(_), Some(address)) = (name, address) {
        let _ = write!(text, " at={address}");
    }
    for (key, value) in [("rule", rule), ("detail", detail)] {
        if let Some(value) = value {
            let _ = write!(text, " {key}={}", quoted(value));
        }
    }
    for (key, bytes) in [("out", bytes_out), ("in", bytes_in)] {
        if let Some(bytes) = bytes {
            let _ = write!(text, " {key}={bytes}");
        }
    }
    if *repeated > 0 {
        let _ = write!(text, " times={}", repeated.saturating_add(1));
    }
    text
}

/// The form of decision 0004.
#[derive(Debug, Serialize)]
pub(crate) struct DecisionJson<'a> {
    version: u32,
    at: String,
    kind: DecisionKind,
    verdict: Verdict,
    reason: DecisionReason,
    sentence: &'a str,
    name: Option<&'a str>,
    address: Option<IpAddr>,
    port: Option<u16>,
    rule: Option<&'a str>,
    detail: Option<&'a str>,
    bytes_out: Option<u64>,
    bytes_in: Option<u64>,
    repeated: u64,
    may_retry: bool,
}

impl<'a> From<&'a Decision> for DecisionJson<'a> {
    fn from(decision: &'a Decision) -> Self {
        let Decision {
            at,
            kind,
            verdict,
            reason,
            name,
            address,
            port,
            rule,
            detail,
            bytes_out,
            bytes_in,
            repeated,
        } = decision;
        Self {
            version: 1,
            at: rfc3339(*at),
            kind: *kind,
            verdict: *verdict,
            reason: *reason,
            sentence: reason.sentence(),
            name: name.as_deref(),
            address: *address,
            port: *port,
            rule: rule.as_deref(),
            detail: detail.as_deref(),
            bytes_out: *bytes_out,
            bytes_in: *bytes_in,
            repeated: *repeated,
            may_retry: reason.may_retry(),
        }
    }
}

fn peer(name: Option<&str>, address: Option<IpAddr>, port: Option<u16>) -> String {
    match (name, address, port) {
        (Some(name), _, Some(port)) => format!("{}:{port}", quoted(name)),
        (Some(name), _, None) => quoted(name),
        (None, Some(address), Some(port)) => SocketAddr::new(address, port).to_string(),
        (None, Some(address), None) => address.to_string(),
        (None, None, _) => "-".to_owned(),
    }
}

/// Text as it is where it can be nothing else, so that a name forges no other part of the line.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%*[],".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        escape(&Value::from(text).to_string()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use sandbar::observe::is_dangerous;
    use serde_json::json;

    use super::*;

    fn decision(verdict: Verdict, reason: DecisionReason) -> Decision {
        Decision {
            at: Timestamp::UNIX_EPOCH,
            kind: DecisionKind::Tcp,
            verdict,
            reason,
            name: Some("example.com".into()),
            address: None,
            port: Some(443),
            rule: None,
            detail: None,
            bytes_out: None,
            bytes_in: None,
            repeated: 0,
        }
    }

    #[test]
    fn lines_say_what_was_decided() {
        let denied = Decision { repeated: 4, ..decision(Verdict::Denied, DecisionReason::NotAllowed) };
        let closed = Decision {
            address: Some("2001:db8::1".parse().unwrap()),
            rule: Some("*.example.com:443".into()),
            bytes_out: Some(12),
            bytes_in: Some(0),
            ..decision(Verdict::Closed, DecisionReason::Finished)
        };
        let raw = Decision { name: None, ..closed.clone() };
        let lines: Vec<_> = [denied, closed, raw].iter().map(decision_text).collect();
        insta::assert_snapshot!(lines.join("\n"), @"
        1970-01-01T00:00:00.000Z denied  tcp    example.com:443 the sandbox's egress policy does not allow this host times=5
        1970-01-01T00:00:00.000Z closed  tcp    example.com:443 it ended at=2001:db8::1 rule=*.example.com:443 out=12 in=0
        1970-01-01T00:00:00.000Z closed  tcp    [2001:db8::1]:443 it ended rule=*.example.com:443 out=12 in=0
        ");
    }

    #[test]
    fn a_line_can_not_be_forged_by_a_name() {
        let forged = Decision {
            name: Some("a:443 it ended\n1970-01-01T00:00:00.000Z allowed \x1b[2J\u{202e}".into()),
            detail: Some("\"x\" times=9".into()),
            ..decision(Verdict::Denied, DecisionReason::NotAHostname)
        };
        insta::assert_snapshot!(decision_text(&forged), @r#"1970-01-01T00:00:00.000Z denied  tcp    "a:443 it ended\n1970-01-01T00:00:00.000Z allowed \u001b[2J\u{202e}":443 it is not a host name detail="\"x\" times=9""#);
    }

    #[test]
    fn json_has_every_key() {
        let failed = decision(Verdict::Failed, DecisionReason::Unreachable);
        let text = serde_json::to_string(&DecisionJson::from(&failed)).unwrap();
        assert!(text.starts_with(r#"{"version":1,"at":"1970-01-01T00:00:00.000Z","kind":"tcp","#), "{text}");
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({
                "version": 1, "at": "1970-01-01T00:00:00.000Z", "kind": "tcp", "verdict": "failed", "reason": "unreachable",
                "sentence": "the host did not take the connection", "name": "example.com", "address": null, "port": 443,
                "rule": null, "detail": null, "bytes_out": null, "bytes_in": null, "repeated": 0, "may_retry": true,
            })
        );
        for verdict in [Verdict::Allowed, Verdict::Denied, Verdict::Failed, Verdict::Closed] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict_word(verdict));
        }
    }

    proptest! {
        #[test]
        fn nothing_from_inside_reaches_the_terminal(name in any::<String>(), detail in any::<String>(), rule in any::<String>()) {
            let hostile = Decision {
                name: Some(name),
                detail: Some(detail),
                rule: Some(rule),
                ..decision(Verdict::Denied, DecisionReason::Malformed)
            };
            prop_assert!(!decision_text(&hostile).contains(is_dangerous));
        }
    }
}
