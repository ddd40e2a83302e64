//! Short forms of attempts, and the places that more than one row knows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::bytes::request;
use super::hello::Hello;
use super::surroundings::HostListeners;
use crate::probe::{
    Attempt, DnsExpect, Expect, HostPlace, Piece, Question, Raw, SocketKind, TcpAttempt, Transport,
};

/// How long an answer may take where nothing is slow on purpose, in milliseconds.
const PATIENCE_MS: u64 = 4000;
/// How long a connection has to stay open that nothing is said over, in milliseconds: longer than the gateway tries to make its own (`Limits::dial`).
const STAY_MS: u64 = 12_000;

/// The resolver's address of version 6 that goes with the first raw one (developers.cloudflare.com/1.1.1.1).
pub(crate) const RAW_V6: Ipv6Addr = Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111);
/// Where clouds keep their metadata: AWS, Azure, Google and most others.
pub(crate) const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// AWS for containers, Alibaba, Azure's wire server, Oracle; AWS by version 6.
pub(crate) const OTHER_METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];
/// Addresses of private networks that routers, container bridges and gateways commonly have.
pub(crate) const PRIVATE: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5)),
    IpAddr::V4(Ipv4Addr::new(172, 17, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 168, 1, 1)),
    IpAddr::V4(Ipv4Addr::new(100, 64, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5)),
];
/// A multicast group of the local scope that nobody is in but for a check (RFC 2365).
pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 83, 66);

/// A TCP connection with these pieces.
pub(crate) fn tcp(to: impl Into<Whereto>, port: u16, send: Vec<Piece>, expect: Expect) -> TcpAttempt {
    let Whereto(to) = to.into();
    TcpAttempt { to, port, send, expect, fast_open: false, patience_ms: PATIENCE_MS }
}

/// A handshake with a hello.
pub(crate) fn tls(to: impl Into<Whereto>, port: u16, hello: &Hello) -> Attempt {
    Attempt::Tcp(tcp(to, port, vec![Piece::now(hello.bytes())], Expect::Tls))
}

/// A plain request for `/` of `host`.
pub(crate) fn get(to: impl Into<Whereto>, host: &str, port: u16) -> Attempt {
    let lines = request(&["GET / HTTP/1.1", &format!("Host: {host}"), "Connection: close"]);
    Attempt::Tcp(tcp(to, port, vec![Piece::now(lines)], Expect::Http { allowed: 0 }))
}

/// A page of `host`, and not the gateway's word that it has none.
pub(crate) fn page(host: &str, port: u16) -> Attempt {
    let lines = request(&["GET / HTTP/1.1", &format!("Host: {host}"), "Connection: close"]);
    Attempt::Tcp(tcp(host, port, vec![Piece::now(lines)], Expect::Page))
}

/// A connection over which nothing is said, since who listens there is not known.
pub(crate) fn stay(host: &str, port: u16) -> Attempt {
    Attempt::Tcp(TcpAttempt { patience_ms: STAY_MS, ..tcp(host, port, Vec::new(), Expect::Stay) })
}

/// Something said to a name on 80, of which so many answers are as they should be.
pub(crate) fn say(name: &str, bytes: Vec<u8>, allowed: usize) -> Attempt {
    Attempt::Tcp(tcp(name, 80, vec![Piece::now(bytes)], Expect::Http { allowed }))
}

/// A connection to one of the host's own services.
pub(crate) fn token(to: SocketAddr, listeners: &HostListeners) -> Attempt {
    Attempt::Tcp(tcp(to.ip(), to.port(), Vec::new(), Expect::Token(Raw(listeners.token.clone().into()))))
}

/// A datagram, and something that comes back.
pub(crate) fn udp(to: SocketAddr, send: &[u8]) -> Attempt {
    Attempt::Udp { to, send: Raw(send.to_vec()) }
}

/// A question for an address, to a resolver that is not to be there.
pub(crate) fn ask_outside(server: impl Into<IpAddr>, transport: Transport) -> Attempt {
    Attempt::Dns {
        server: Some(server.into()),
        transport,
        question: Question::address("example.com"),
        expect: DnsExpect::Reply,
    }
}

/// A question to the resolver of the place.
pub(crate) fn ask(question: Question) -> Attempt {
    Attempt::Dns { server: None, transport: Transport::Udp, question, expect: DnsExpect::Records }
}

/// A socket of a kind that is not to be had.
pub(crate) fn socket(family: u16, kind: u32, protocol: u32) -> Attempt {
    Attempt::Socket(SocketKind { family, kind, protocol, ask: None })
}

/// Where a connection goes.
pub(crate) struct Whereto(HostPlace);

impl From<IpAddr> for Whereto {
    fn from(address: IpAddr) -> Self {
        Self(HostPlace::Address(address))
    }
}

impl From<Ipv4Addr> for Whereto {
    fn from(address: Ipv4Addr) -> Self {
        Self(HostPlace::Address(address.into()))
    }
}

impl From<Ipv6Addr> for Whereto {
    fn from(address: Ipv6Addr) -> Self {
        Self(HostPlace::Address(address.into()))
    }
}

impl From<&str> for Whereto {
    fn from(name: &str) -> Self {
        Self(HostPlace::Name(name.to_owned()))
    }
}
