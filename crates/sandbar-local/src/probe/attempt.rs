use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// One thing to try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Attempt {
    /// A TCP connection, what is said over it, and what counts as an answer.
    Tcp(TcpAttempt),
    /// A datagram, and an answer to it.
    Udp { to: SocketAddr, send: Raw },
    /// A question to a resolver.
    Dns { server: Option<IpAddr>, transport: Transport, question: Question, expect: DnsExpect },
    /// A socket that is no ordinary one.
    Socket(SocketKind),
    /// A message to the kernel's routing table that asks for a change.
    Route { message: Raw },
    /// A stream socket of the host, by its path or by its abstract name.
    Unix { path: Option<PathBuf>, name: Option<Raw>, token: Raw },
    /// A file, for reading and writing.
    Open { path: PathBuf },
    /// A place of our own at which to listen.
    Bind { to: SocketAddr },
    /// What descriptors a program here starts with, and whether those of the first process can be had.
    Inherited,
    /// Into the network of the first process of another place, through a file in `/proc`.
    Enter { path: PathBuf },
}

/// A TCP connection, what is said over it, and what counts as an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TcpAttempt {
    /// Whereto.
    pub(crate) to: HostPlace,
    /// At which port.
    pub(crate) port: u16,
    /// What is said, in order.
    pub(crate) send: Vec<Piece>,
    /// What counts as an answer.
    pub(crate) expect: Expect,
    /// Whether the first piece goes with the connection's first packet.
    #[serde(default)]
    pub(crate) fast_open: bool,
    /// How long an answer may take, in milliseconds.
    pub(crate) patience_ms: u64,
}

/// Whereto.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HostPlace {
    /// An address.
    Address(IpAddr),
    /// A text for the resolver of the place where the probe runs, whatever it looks like.
    Name(String),
}

/// Bytes, and how long to wait before they are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// The bytes.
    pub(crate) bytes: Raw,
    /// The wait, in milliseconds.
    #[serde(default)]
    pub(crate) after_ms: u64,
}

/// What counts as an answer of the far side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Expect {
    /// Anything.
    Anything,
    /// These bytes somewhere in it: nobody else knows them.
    Token(Raw),
    /// A TLS handshake message. An alert is a refusal.
    Tls,
    /// An HTTP answer that is not the gateway's own, neither its refusal nor its word that the host could not be reached.
    Page,
    /// Any words, or a connection that stays open: who listens there may wait for a client to begin. The gateway ends one that it can't make.
    Stay,
    /// More HTTP answers that are not the gateway's refusal than are allowed.
    Http { allowed: usize },
}

/// A question of one record type; the labels are sent as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Question {
    /// The labels.
    pub(crate) labels: Vec<Raw>,
    /// The record type's number.
    pub(crate) record: u16,
}

/// What counts as an answer of a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DnsExpect {
    /// Any reply: nobody is to be there at all.
    Reply,
    /// Records: the resolver may be there, and is not to have any.
    Records,
}

/// How a question is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

/// A socket by the numbers of `socket(2)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SocketKind {
    /// The family.
    pub(crate) family: u16,
    /// The type.
    pub(crate) kind: u32,
    /// The protocol; 0 for the default.
    pub(crate) protocol: u32,
    /// What to send with it, and to whom: then only an answer counts. Else having the socket does.
    pub(crate) ask: Option<(SocketAddr, Raw)>,
}

/// Bytes; in JSON they stand in base 64.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Question {
    /// An address of version 4 for `name`.
    pub(crate) fn address(name: &str) -> Self {
        Self { labels: labels(name), record: super::dns::TYPE_A }
    }

    /// Records of another type.
    pub(crate) fn of_type(name: &str, record: u16) -> Self {
        Self { labels: labels(name), record }
    }
}

fn labels(name: &str) -> Vec<Raw> {
    name.split('.').filter(|label| !label.is_empty()).map(|label| Raw(label.into())).collect()
}

impl Piece {
    /// Bytes without a wait.
    pub(crate) fn now(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: Raw(bytes.into()), after_ms: 0 }
    }
}

impl From<Raw> for String {
    fn from(raw: Raw) -> Self {
        STANDARD.encode(raw.0)
    }
}

impl TryFrom<String> for Raw {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        STANDARD.decode(text).map(Self)
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
