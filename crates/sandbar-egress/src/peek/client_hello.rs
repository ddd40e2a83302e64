use std::fmt;

use sandbar_core::{DecisionReason, Hostname};

/// Most bytes of a record's payload (RFC 8446, section 5.1).
const MAX_RECORD: usize = 1 << 14;
/// The record type of handshake messages, and the message type of the hello (RFC 8446, sections 5.1 and 4).
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Extensions that name hosts (RFC 6066, section 3), or hide them (RFC 9849; the draft before it had another number).
const SERVER_NAME: u16 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const ENCRYPTED_SERVER_NAME: u16 = 0xffce;
/// The only type of entry in the list of server names.
const HOST_NAME: u8 = 0;

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek<T, F> {
    /// The start of it. There is nothing more to say before there are so many bytes in all.
    NeedMore(usize),
    /// It is there in whole.
    Done(T),
    /// It is none, or one that nobody should read.
    Bad(F),
}

/// The first message of a TLS client, as far as it says where it wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The host that it names, as it wrote it; not empty.
    pub server_name: Option<Vec<u8>>,
    /// Whether it holds, or pretends to hold, an encrypted hello. Browsers always send one, so it says nothing; a real one needs a key that this
    /// resolver does not serve.
    pub encrypted: bool,
    /// How many bytes it took.
    pub len: usize,
}

/// Why a hello is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloFlaw {
    /// It is not TLS.
    NotTls,
    /// It is longer than is looked at.
    TooLong,
    /// It is not as the standard has it; where.
    Malformed(&'static str),
    /// It names no host.
    NoName,
    /// It names what is no host name: an address, or bytes of all sorts.
    NotAName,
    /// It names another host.
    OtherName,
}

type Read<T> = Result<T, HelloFlaw>;

impl ClientHello {
    /// Reads the first bytes of a connection, of which there may be more than the hello. A hello that is longer than `max` with all that frames it is
    /// none.
    pub fn read(bytes: &[u8], max: usize) -> Peek<Self, HelloFlaw> {
        match message(bytes) {
            Ok(Message::Part(needed)) if needed > max => Peek::Bad(HelloFlaw::TooLong),
            Ok(Message::Part(needed)) => Peek::NeedMore(needed),
            Ok(Message::Whole { len, .. }) if len > max => Peek::Bad(HelloFlaw::TooLong),
            Ok(Message::Whole { body, len }) => match hello(&body, len) {
                Ok(hello) => Peek::Done(hello),
                Err(flaw) => Peek::Bad(flaw),
            },
            Err(flaw) => Peek::Bad(flaw),
        }
    }

    /// Whether it names this host and no other.
    pub fn check(&self, host: &Hostname) -> Result<(), HelloFlaw> {
        let name = self.server_name.as_deref().ok_or(HelloFlaw::NoName)?;
        if !name.is_ascii() {
            return Err(HelloFlaw::NotAName);
        }
        match Hostname::from_bytes(name) {
            Ok(named) if named == *host => Ok(()),
            Ok(_) => Err(HelloFlaw::OtherName),
            Err(_) => Err(HelloFlaw::NotAName),
        }
    }
}

enum Message {
    /// Not the whole; the fewest bytes of the stream with which there can be more to say.
    Part(usize),
    /// The body of the hello, put together from its records, which took so many bytes of the stream.
    Whole { body: Vec<u8>, len: usize },
}

/// Takes the hello out of its records. It must end where a record ends: nothing may follow it before the server has answered.
fn message(bytes: &[u8]) -> Read<Message> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        match rest {
            [] if at == 0 => return Ok(Message::Part(1)),
            [kind, ..] if *kind != HANDSHAKE => {
                return Err(if at == 0 { HelloFlaw::NotTls } else { HelloFlaw::Malformed("record type") });
            }
            [_, major, ..] if *major != 3 => return Err(HelloFlaw::NotTls),
            [_, _, minor, ..] if *minor > 4 => return Err(HelloFlaw::NotTls),
            _ => {}
        }
        let [_, _, _, high, low, payload @ ..] = rest else {
            return Ok(Message::Part(at + 5));
        };
        let size = usize::from(u16::from_be_bytes([*high, *low]));
        if size == 0 || size > MAX_RECORD {
            return Err(HelloFlaw::Malformed("record length"));
        }
        let missing = size.saturating_sub(payload.len());
        body.extend_from_slice(&payload[..size - missing]);
        if body.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(HelloFlaw::Malformed("first message"));
        }
        at += 5 + size;
        let needed = match body.get(1..4) {
            Some(length) => 4 + length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
            None => 4,
        };
        if missing > 0 {
            let beyond = needed.saturating_sub(body.len() + missing);
            return Ok(Message::Part(at + if beyond > 0 { 5 + beyond } else { 0 }));
        }
        if body.len() >= 4 && body.len() >= needed {
            if body.len() > needed {
                return Err(HelloFlaw::Malformed("bytes after the hello"));
            }
            body.drain(..4);
            return Ok(Message::Whole { body, len: at });
        }
        if at == bytes.len() {
            return Ok(Message::Part(at + 5 + needed - body.len()));
        }
    }
}

fn hello(body: &[u8], len: usize) -> Read<ClientHello> {
    let mut rest = Bytes(body);
    let version = rest.number("version")?;
    if !(0x0300..=0x0303).contains(&version) {
        return Err(HelloFlaw::Malformed("version"));
    }
    rest.take(32, "random")?;
    if rest.short_list("session")?.len() > 32 {
        return Err(HelloFlaw::Malformed("session"));
    }
    let suites = rest.list("cipher suites")?;
    if suites.is_empty() || !suites.len().is_multiple_of(2) {
        return Err(HelloFlaw::Malformed("cipher suites"));
    }
    if rest.short_list("compression")?.is_empty() {
        return Err(HelloFlaw::Malformed("compression"));
    }
    let mut hello = ClientHello { server_name: None, encrypted: false, len };
    if rest.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = Bytes(rest.list("extensions")?);
    rest.end("extensions")?;
    let mut seen = std::collections::HashSet::new();
    while !extensions.0.is_empty() {
        let kind = extensions.number("extension")?;
        let data = extensions.list("extension")?;
        if !seen.insert(kind) {
            return Err(HelloFlaw::Malformed("an extension twice"));
        }
        match kind {
            SERVER_NAME => hello.server_name = Some(server_name(data)?),
            ENCRYPTED_CLIENT_HELLO | ENCRYPTED_SERVER_NAME => hello.encrypted = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// The only entry of the list of server names.
fn server_name(data: &[u8]) -> Read<Vec<u8>> {
    let mut outer = Bytes(data);
    let mut list = Bytes(outer.list("server name")?);
    outer.end("server name")?;
    if list.take(1, "server name")? != [HOST_NAME] {
        return Err(HelloFlaw::Malformed("server name type"));
    }
    let name = list.list("server name")?;
    list.end("more than one server name")?;
    if name.is_empty() {
        return Err(HelloFlaw::Malformed("empty server name"));
    }
    Ok(name.to_vec())
}

/// What is left to read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize, what: &'static str) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(HelloFlaw::Malformed(what))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self, what: &'static str) -> Read<u16> {
        let bytes = self.take(2, what)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// What has its length before it, in two bytes.
    fn list(&mut self, what: &'static str) -> Read<&'a [u8]> {
        let count = self.number(what)?;
        self.take(count.into(), what)
    }

    /// What has its length before it, in one byte.
    fn short_list(&mut self, what: &'static str) -> Read<&'a [u8]> {
        let count = self.take(1, what)?[0];
        self.take(count.into(), what)
    }

    fn end(&self, what: &'static str) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err(HelloFlaw::Malformed(what)) }
    }
}

impl HelloFlaw {
    /// What is told about it.
    pub fn reason(self) -> DecisionReason {
        match self {
            Self::NotTls => DecisionReason::NotTls,
            Self::TooLong | Self::Malformed(_) => DecisionReason::Malformed,
            Self::NoName | Self::NotAName | Self::OtherName => DecisionReason::NameMismatch,
        }
    }
}

impl fmt::Display for HelloFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTls => f.write_str("what came is not TLS"),
            Self::TooLong => f.write_str("the TLS hello is too long"),
            Self::Malformed(what) => write!(f, "the TLS hello is malformed: {what}"),
            Self::NoName => f.write_str("the TLS hello names no host"),
            Self::NotAName => f.write_str("the TLS hello names what is no host name"),
            Self::OtherName => f.write_str("the TLS hello names another host"),
        }
    }
}

impl std::error::Error for HelloFlaw {}
