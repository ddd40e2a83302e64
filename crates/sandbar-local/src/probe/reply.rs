//! What an answer over TCP means. Pure: bytes in, an outcome out.

use super::attempt::Expect;
use super::tried::{Outcome, Said};

/// The header by which the gateway says that an answer is its refusal.
const REFUSAL_HEADER: &str = "x-sandbar-egress: denied";
/// The header by which it says that the host could not be reached: it tried.
const FAILURE_HEADER: &str = "x-sandbar-egress: failed";
/// The content type of a TLS record with an alert.
const TLS_ALERT: u8 = 0x15;

/// How a connection stood when no more was to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The other side closed it.
    Closed,
    /// The other side reset it.
    Reset,
    /// It was open, and nothing came any more.
    Silent,
}

impl End {
    fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Silent => "left without an answer",
        }
    }
}

/// Whether more bytes can't change what these mean.
pub(super) fn is_settled(expect: &Expect, bytes: &[u8]) -> bool {
    match expect {
        Expect::Anything | Expect::Tls | Expect::Stay => !bytes.is_empty(),
        // Whose answer it is stands in its head.
        Expect::Page => contains(bytes, b"\r\n\r\n"),
        Expect::Token(token) => contains(bytes, &token.0),
        Expect::Http { allowed } => {
            let Answers { granted, failed, .. } = answers(bytes);
            granted + failed > *allowed
        }
    }
}

/// What the bytes that came, and the end after them, mean.
pub(super) fn judge(expect: &Expect, bytes: &[u8], end: End) -> Said {
    if bytes.is_empty() && *expect == Expect::Stay && end == End::Silent {
        return (Outcome::Reached, "the connection stayed open".to_owned());
    }
    if bytes.is_empty() {
        // An open connection that says nothing shows neither a wall nor a way.
        let outcome = if end == End::Silent { Outcome::Unclear } else { Outcome::Refused };
        return (outcome, format!("connected, then {}", end.word()));
    }
    match expect {
        Expect::Anything | Expect::Stay => (Outcome::Reached, format!("{} bytes came back", bytes.len())),
        Expect::Token(token) if contains(bytes, &token.0) => {
            (Outcome::Reached, "the listener's own words came back".to_owned())
        }
        Expect::Token(_) => (Outcome::Refused, "somebody else answered".to_owned()),
        Expect::Tls if bytes[0] == TLS_ALERT => {
            let number = bytes.get(6).map_or_else(String::new, |number| format!(" {number}"));
            (Outcome::Refused, format!("TLS alert{number}"))
        }
        Expect::Tls => (Outcome::Reached, "the far side went on with the handshake".to_owned()),
        Expect::Http { allowed } => judge_http(*allowed, bytes),
        Expect::Page => judge_page(bytes),
    }
}

fn judge_page(bytes: &[u8]) -> Said {
    let word = match answers(bytes) {
        Answers { granted: 1.., .. } => return (Outcome::Reached, "a page came back".to_owned()),
        Answers { failed: 1.., .. } => "the gateway says that it can't be reached",
        Answers { refused: 1.., .. } => "refused by the gateway",
        _ => "something else than HTTP came back",
    };
    (Outcome::Refused, word.to_owned())
}

fn judge_http(allowed: usize, bytes: &[u8]) -> Said {
    let Answers { granted, refused, failed } = answers(bytes);
    // What the gateway tried it had allowed.
    let granted = granted + failed;
    if granted > allowed {
        return (Outcome::Reached, format!("{granted} answered, {refused} refused by the gateway"));
    }
    if granted + refused == 0 {
        return (Outcome::Reached, "something else than HTTP came back".to_owned());
    }
    (Outcome::Refused, format!("{granted} answered as allowed, {refused} refused by the gateway"))
}

/// How many answers of each kind there are.
struct Answers {
    granted: usize,
    refused: usize,
    failed: usize,
}

/// Counts what looks like the start of an answer, in bodies too: a way out is rather seen twice than not at all.
fn answers(bytes: &[u8]) -> Answers {
    let starts: Vec<usize> = (0..bytes.len()).filter(|at| is_status(&bytes[*at..])).collect();
    let mut answers = Answers { granted: 0, refused: 0, failed: 0 };
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(bytes.len());
        let answer = String::from_utf8_lossy(&bytes[*start..end]);
        let head = answer.split("\r\n\r\n").next().unwrap_or_default();
        let says = |header: &str| head.lines().any(|line| line.trim().eq_ignore_ascii_case(header));
        let count = if says(REFUSAL_HEADER) {
            &mut answers.refused
        } else if says(FAILURE_HEADER) {
            &mut answers.failed
        } else {
            &mut answers.granted
        };
        *count += 1;
    }
    answers
}

/// Whether an HTTP/1 answer starts here: a body may name the version, and not with a code.
fn is_status(bytes: &[u8]) -> bool {
    let Some([b'0' | b'1', b' ', code @ ..]) = bytes.strip_prefix(b"HTTP/1.") else { return false };
    code.len() >= 3 && code[..3].iter().all(u8::is_ascii_digit)
}

fn contains(bytes: &[u8], token: &[u8]) -> bool {
    !token.is_empty() && bytes.windows(token.len()).any(|window| window == token)
}
