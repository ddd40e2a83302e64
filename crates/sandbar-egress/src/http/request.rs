use std::fmt;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method};
use sandbar_core::{DecisionReason, Hostname};

use super::websocket;

/// Whom a request may name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) name: &'a Hostname,
    pub(super) port: u16,
    pub(super) scheme: &'a str,
    pub(super) default_port: u16,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// An answer.
    Answer,
    /// To speak the `websocket` protocol from then on.
    WebSocket,
}

/// Why a request is refused, whatever the policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestFlaw {
    /// It names another host, or another port or scheme; as it was written.
    Other(String),
    /// It names no host.
    NoHost,
    /// It asks for a tunnel.
    Tunnel,
    /// It asks for another protocol; as it was written.
    Protocol(String),
    /// It can't be read in one way; where.
    Malformed(&'static str),
}

/// Checks that a request is for the host that its connection is for, and asks for nothing but an answer or a `websocket`.
pub(super) fn check(head: &Parts, expected: Expected<'_>) -> Result<Wanted, RequestFlaw> {
    if head.method == Method::CONNECT {
        return Err(RequestFlaw::Tunnel);
    }
    check_target(head, expected)?;
    let mut hosts = head.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => check_authority(host.as_bytes(), expected)?,
        // Version 2 says it in the target alone.
        (None, None) if head.version == http::Version::HTTP_2 && head.uri.authority().is_some() => {}
        (None, _) => return Err(RequestFlaw::NoHost),
        (Some(_), Some(_)) => return Err(RequestFlaw::Malformed("more than one host")),
    }
    if head.headers.contains_key(TRANSFER_ENCODING) && head.headers.contains_key(CONTENT_LENGTH) {
        return Err(RequestFlaw::Malformed("content-length with transfer-encoding"));
    }
    check_expectation(&head.headers)?;
    if !head.headers.contains_key(UPGRADE) {
        return Ok(Wanted::Answer);
    }
    let protocols: Vec<_> = head.headers.get_all(UPGRADE).iter().map(|v| shown(v.as_bytes())).collect();
    if protocols.len() != 1 || !protocols[0].eq_ignore_ascii_case("websocket") {
        return Err(RequestFlaw::Protocol(protocols.join(", ")));
    }
    websocket::check(head).map_err(RequestFlaw::Malformed)?;
    Ok(Wanted::WebSocket)
}

/// The target is a path, or the same host in full.
fn check_target(head: &Parts, expected: Expected<'_>) -> Result<(), RequestFlaw> {
    let target = &head.uri;
    match (target.scheme_str(), target.authority()) {
        (Some(scheme), Some(authority)) if scheme.eq_ignore_ascii_case(expected.scheme) => {
            check_authority(authority.as_str().as_bytes(), expected)
        }
        (Some(_), _) => Err(RequestFlaw::Other(shown(target.to_string().as_bytes()))),
        (None, None) if target.path() == "*" => {
            if head.method == Method::OPTIONS {
                Ok(())
            } else {
                Err(RequestFlaw::Malformed("target"))
            }
        }
        (None, None) if target.path().starts_with('/') => Ok(()),
        (None, _) => Err(RequestFlaw::Malformed("target")),
    }
}

/// `name`, or `name:port`. Who it is for (`user@`) has no place in it.
fn check_authority(text: &[u8], expected: Expected<'_>) -> Result<(), RequestFlaw> {
    let other = || RequestFlaw::Other(shown(text));
    let (host, port) = match text.iter().rposition(|b| *b == b':') {
        Some(colon) => (&text[..colon], read_port(&text[colon + 1..]).ok_or_else(other)?),
        None => (text, expected.default_port),
    };
    let named = host.is_ascii().then(|| Hostname::from_bytes(host).ok()).flatten();
    if named.as_ref() == Some(expected.name) && port == expected.port { Ok(()) } else { Err(other()) }
}

fn read_port(digits: &[u8]) -> Option<u16> {
    // `+80` and `080` are numbers to some readers, and not to others.
    let is_plain = digits.iter().all(u8::is_ascii_digit) && !digits.starts_with(b"0");
    std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

/// The only expectation there is (RFC 9110, section 10.1.1).
fn check_expectation(headers: &HeaderMap) -> Result<(), RequestFlaw> {
    let good = headers
        .get_all(http::header::EXPECT)
        .iter()
        .all(|v| v.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if good { Ok(()) } else { Err(RequestFlaw::Malformed("expectation")) }
}

/// For events and answers: clean, and short.
pub(crate) fn shown(bytes: &[u8]) -> String {
    /// Bytes of what was sent that are repeated.
    const SHOWN: usize = 100;
    let mut text = bytes[..bytes.len().min(SHOWN)].escape_ascii().to_string();
    if bytes.len() > SHOWN {
        text.push_str("...");
    }
    text
}

/// An error for events and answers: short, and with nothing that a terminal would act on. What it repeats of others is escaped already.
pub(super) fn clean(text: &str) -> String {
    /// Characters of an error that are told.
    const TOLD: usize = 200;
    text.chars().take(TOLD).map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

impl RequestFlaw {
    pub(super) fn reason(&self) -> DecisionReason {
        match self {
            Self::Other(_) | Self::NoHost => DecisionReason::NameMismatch,
            Self::Tunnel => DecisionReason::TunnelNotAllowed,
            Self::Protocol(_) => DecisionReason::UpgradeNotAllowed,
            Self::Malformed(_) => DecisionReason::Malformed,
        }
    }
}

impl fmt::Display for RequestFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(written) => write!(f, "the request names `{written}`"),
            Self::NoHost => f.write_str("the request names no host"),
            Self::Tunnel => f.write_str("the request is `CONNECT`"),
            Self::Protocol(written) => write!(f, "the request is for protocol `{written}`"),
            Self::Malformed(what) => write!(f, "the request is malformed: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_as_it_is_and_without_what_a_terminal_acts_on() {
        assert_eq!(clean("the name's address `10.0.0.1`"), "the name's address `10.0.0.1`");
        assert_eq!(clean("a\u{1b}[2J\n\u{202e}b"), "a?[2J??b");
        assert_eq!(clean(&"x".repeat(1000)).len(), 200);
    }
}
