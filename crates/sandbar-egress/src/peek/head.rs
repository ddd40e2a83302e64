use std::fmt;

use sandbar_core::DecisionReason;

use super::client_hello::Peek;

/// Longest head of a request in bytes, and longest trailer: the most that widespread servers take.
pub const MAX_HEAD: usize = 32 << 10;
/// Most header fields of a head.
pub const MAX_FIELDS: usize = 128;
/// Longest method in bytes; the longest registered one has 17.
const MAX_METHOD: usize = 32;

/// The head of a request that can be read in exactly one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How many bytes it takes, with the empty line.
    pub len: usize,
    /// What follows it.
    pub body: Framing,
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes; 0 where there is none.
    Length(u64),
    /// Where its chunks say so.
    Chunked,
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFlaw {
    /// It is not HTTP of version 1.
    NotHttp,
    /// It speaks version 2 without being asked.
    Http2,
    /// It is longer than is looked at, or has more fields.
    TooLong,
    /// It can be read in more than one way, or in none; where.
    Malformed(&'static str),
    /// It names no host, or more than one.
    Hosts,
}

type Read<T> = Result<T, HeadFlaw>;

/// Reads the head of a request at the start of `bytes`, more strictly than the standard (RFC 9112) asks a server to: what somebody may read in another
/// way is refused, so that whoever reads it after this sees the same message, and the next one where this saw it.
pub fn check_head(bytes: &[u8]) -> Peek<Head, HeadFlaw> {
    if let Err(flaw) = first_bytes(bytes) {
        return Peek::Bad(flaw);
    }
    let end = memchr::memmem::find(&bytes[..bytes.len().min(MAX_HEAD)], b"\r\n\r\n");
    let Some(end) = end else {
        let first_line =
            memchr::memmem::find(bytes, b"\r\n").map_or(Ok(true), |end| request_line(&bytes[..end]));
        return match line_ends(bytes, false).and(first_line) {
            Err(flaw) => Peek::Bad(flaw),
            Ok(_) if bytes.len() >= MAX_HEAD => Peek::Bad(HeadFlaw::TooLong),
            Ok(_) => Peek::NeedMore(bytes.len() + 1),
        };
    };
    match whole(&bytes[..end + 4]) {
        Ok(body) => Peek::Done(Head { len: end + 4, body }),
        Err(flaw) => Peek::Bad(flaw),
    }
}

/// What a method can't start with is told at once, so that nobody waits for the rest of it.
fn first_bytes(bytes: &[u8]) -> Read<()> {
    /// How clients of version 2 start (RFC 9113, section 3.4).
    const PREFACE: &[u8] = b"PRI * HTTP/2.0";
    if bytes.len() >= PREFACE.len() && bytes.starts_with(PREFACE) {
        return Err(HeadFlaw::Http2);
    }
    let method = bytes.iter().take(MAX_METHOD + 1).take_while(|b| **b != b' ');
    if method.clone().any(|b| !is_token(*b)) || bytes.first() == Some(&b' ') {
        return Err(HeadFlaw::NotHttp);
    }
    if method.count() > MAX_METHOD { Err(HeadFlaw::NotHttp) } else { Ok(()) }
}

/// Every line ends with CR LF, and neither stands anywhere else.
fn line_ends(bytes: &[u8], complete: bool) -> Read<()> {
    for at in memchr::memchr2_iter(b'\r', b'\n', bytes) {
        let good = match bytes[at] {
            b'\r' => bytes.get(at + 1).map_or(!complete, |next| *next == b'\n'),
            _ => at > 0 && bytes[at - 1] == b'\r',
        };
        if !good {
            return Err(HeadFlaw::Malformed("a line's end"));
        }
    }
    Ok(())
}

fn whole(head: &[u8]) -> Read<Framing> {
    line_ends(head, true)?;
    let mut lines =
        head[..head.len() - 4].split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let is_1_1 = request_line(lines.next().unwrap_or_default())?;
    let (mut hosts, mut length, mut chunked, mut fields) = (0, None, false, 0);
    for line in lines {
        fields += 1;
        if fields > MAX_FIELDS {
            return Err(HeadFlaw::TooLong);
        }
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            hosts += 1;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            if length.replace(number(value)?).is_some() {
                return Err(HeadFlaw::Malformed("more than one content-length"));
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if chunked || !is_1_1 || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadFlaw::Malformed("transfer-encoding"));
            }
            chunked = true;
        }
    }
    if hosts != 1 {
        return Err(HeadFlaw::Hosts);
    }
    match (length, chunked) {
        (Some(_), true) => Err(HeadFlaw::Malformed("content-length with transfer-encoding")),
        (None, true) => Ok(Framing::Chunked),
        (length, false) => Ok(Framing::Length(length.unwrap_or(0))),
    }
}

/// Whether it is of version 1.1; else it is of 1.0.
fn request_line(line: &[u8]) -> Read<bool> {
    let mut parts = line.split(|b| *b == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(HeadFlaw::Malformed("request line"));
    };
    if method.is_empty()
        || target.is_empty()
        || !target.iter().all(|b| (0x21..0x7f).contains(b) || *b >= 0x80)
    {
        return Err(HeadFlaw::Malformed("request line"));
    }
    match version {
        b"HTTP/1.1" => Ok(true),
        b"HTTP/1.0" => Ok(false),
        _ => Err(HeadFlaw::NotHttp),
    }
}

/// A field's name, and its value without the space around it.
pub(crate) fn field(line: &[u8]) -> Read<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', line).ok_or(HeadFlaw::Malformed("a field without a colon"))?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|b| is_token(*b)) {
        return Err(HeadFlaw::Malformed("a field's name"));
    }
    if !value.iter().all(|b| *b == b'\t' || (0x20..0x7f).contains(b) || *b >= 0x80) {
        return Err(HeadFlaw::Malformed("a field's value"));
    }
    let is_space = |b: &u8| matches!(b, b' ' | b'\t');
    let start = value.iter().position(|b| !is_space(b)).unwrap_or(value.len());
    let end = value.iter().rposition(|b| !is_space(b)).map_or(start, |last| last + 1);
    Ok((name, &value[start..end]))
}

fn number(value: &[u8]) -> Read<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
    // The largest numbers mean something else to some readers.
    number.filter(|n| *n <= u64::MAX >> 1).ok_or(HeadFlaw::Malformed("content-length"))
}

/// What methods and names of fields are made of (RFC 9110, section 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl HeadFlaw {
    /// What is told about it.
    pub fn reason(self) -> DecisionReason {
        match self {
            Self::NotHttp => DecisionReason::NotHttp,
            Self::Http2 => DecisionReason::UpgradeNotAllowed,
            Self::TooLong | Self::Malformed(_) => DecisionReason::Malformed,
            Self::Hosts => DecisionReason::NameMismatch,
        }
    }
}

impl fmt::Display for HeadFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHttp => f.write_str("what came is not HTTP of version 1"),
            Self::Http2 => f.write_str("the client speaks HTTP of version 2"),
            Self::TooLong => f.write_str("the request's head is too long"),
            Self::Malformed(what) => write!(f, "the request is malformed: {what}"),
            Self::Hosts => f.write_str("the request does not name exactly one host"),
        }
    }
}

impl std::error::Error for HeadFlaw {}
