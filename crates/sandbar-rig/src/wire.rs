//! What tests and rig say to each other over the socket: a JSON line each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Name of the control socket in the rig's folder.
pub const SOCKET: &str = "ctl";

/// Longest line in bytes, either way: whole records of a long test fit.
pub const LINE_LIMIT: u64 = 64 * 1024 * 1024;

/// What a test asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// An address that nobody else was given.
    Address,
    /// Sets what the resolver answers for a name: one answer a query and type, the last one for ever. `*.name` stands for all below it.
    Zone { name: String, answers: Vec<Answer> },
    /// Serves the files of a folder as the host's site.
    Folder { host: String, folder: PathBuf },
    /// The number of the last thing that was recorded.
    Mark,
    /// Queries after `since` for `name` or a name below it (all, without a name).
    Queries { since: u64, name: Option<String> },
    /// Packets after `since` that began something, to one address or to any.
    Arrivals { since: u64, to: Option<IpAddr> },
    /// TCP connections after `since`, to one address or to any.
    Connections { since: u64, to: Option<IpAddr> },
    /// HTTP requests after `since` for one host (without port) or for any.
    Requests { since: u64, host: Option<String> },
    /// Cuts the link between host and outside, or joins it again.
    Link { state: LinkState },
    /// Lets packets to an address pass, or not.
    Reach { address: IpAddr, reach: Reach },
    /// Listens on another TCP port, at every address.
    Listen { port: u16 },
}

/// What the rig answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", content = "value", rename_all = "snake_case")]
pub enum Reply {
    Done,
    Address(Address),
    Mark(u64),
    Queries(Vec<Query>),
    Arrivals(Vec<Arrival>),
    Connections(Vec<Connection>),
    Requests(Vec<Request>),
    Refused(String),
}

/// Whether host and outside are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    Up,
    Down,
}

/// How packets to an address fare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// They arrive, as they do at first.
    Open,
    /// The sender is told that there is no such host: at once by IPv4, at its second try (after a second) by IPv6.
    Unreachable,
    /// They are lost in silence.
    Silent,
}

/// A public address of the outside, in both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub v4: Ipv4Addr,
    pub v6: Ipv6Addr,
}

/// One answer of the resolver.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    pub outcome: Outcome,
    pub records: Vec<Record>,
    /// In seconds.
    pub ttl: u32,
    /// In milliseconds, before the answer is sent.
    pub delay: u64,
}

/// How a query ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The records of the type asked for, which may be none.
    #[default]
    Records,
    NxDomain,
    ServFail,
    /// No answer at all.
    Silence,
}

/// A record of a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "lowercase")]
pub enum Record {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Cname(String),
    Txt(String),
    /// A service binding with these protocols, and an ECH configuration that is none.
    Https(Vec<String>),
}

/// A query that reached the resolver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Query {
    pub seq: u64,
    /// Lower case, without the last dot.
    pub name: String,
    /// As it stood in the packet.
    pub asked: String,
    /// `A`, `AAAA`, `TXT` and so on.
    pub kind: String,
    /// `udp`, `tcp` or `tls`.
    pub transport: String,
    pub from: SocketAddr,
    pub to: SocketAddr,
}

/// A packet that came from the host and began something: the first packet of a TCP connection, or any packet of another protocol.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arrival {
    pub seq: u64,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, `sctp`, `dccp`, `gre`, or the protocol's number.
    pub protocol: String,
    pub from: IpAddr,
    pub to: IpAddr,
    /// The port that was asked for, in protocols that have ports.
    pub port: Option<u16>,
    /// First bytes after the headers.
    pub head: Vec<u8>,
}

/// A TCP connection that was accepted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Connection {
    pub seq: u64,
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// First bytes that came.
    pub head: Vec<u8>,
    /// The name in the `ClientHello`, where there was one.
    pub server_name: Option<String>,
    /// Bytes that came over the wire.
    pub received: u64,
    /// Bytes that went over the wire.
    pub sent: u64,
    /// Whether it has ended.
    pub ended: bool,
}

/// An HTTP request that was answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub seq: u64,
    /// From the request's authority or `Host`, without port, lower case.
    pub host: String,
    pub method: String,
    pub path: String,
    /// `HTTP/1.1` and so on.
    pub version: String,
    /// The name in the `ClientHello`, where there was TLS.
    pub server_name: Option<String>,
    pub headers: Vec<(String, String)>,
    pub to: SocketAddr,
}
