use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use sandbar_core::Protocol;

use crate::probe::{Attempt, Expect, Piece, Raw, SocketKind, TcpAttempt};
use crate::verify::bytes::{ping_v4, ping_v6, quic_hello, routing_change, time_question};
use crate::verify::form::{RAW_V6, socket, tcp, tls, udp};
use crate::verify::hello::Hello;
use crate::verify::row::{Group, Row, Tried, Tries, Try, Weight};
use crate::verify::surroundings::Surroundings;

/// Numbers of `socket(2)`: families.
const INET: u16 = 2;
const INET6: u16 = 10;
/// Types.
const STREAM: u32 = 1;
const DGRAM: u32 = 2;
const RAW: u32 = 3;
const SEQPACKET: u32 = 5;
const DCCP: u32 = 6;
/// Protocols.
const ICMP: u32 = 1;
const DCCP_PROTOCOL: u32 = 33;
const GRE: u32 = 47;
const ICMPV6: u32 = 58;
const SCTP: u32 = 132;
const ANY_RAW: u32 = 255;
/// Families of which no program inside has any use, and what they are: packets, virtual machines, the kernel's ciphers, express data path, CAN,
/// Bluetooth, near field, TIPC, RDS, SMC.
const FAMILIES: &[(u16, u32, &str)] = &[
    (38, SEQPACKET, "AF_ALG"),
    (44, RAW, "AF_XDP"),
    (29, RAW, "AF_CAN"),
    (31, RAW, "AF_BLUETOOTH"),
    (39, RAW, "AF_NFC"),
    (30, SEQPACKET, "AF_TIPC"),
    (21, SEQPACKET, "AF_RDS"),
    (43, STREAM, "AF_SMC"),
];
/// A public time server (time.cloudflare.com).
const TIME: Ipv4Addr = Ipv4Addr::new(162, 159, 200, 1);

pub(super) const ROWS: &[Row] = &[
    row("udp", "any UDP", |at| {
        let to = |address: Ipv4Addr, port: u16, send: Vec<u8>| {
            let to = SocketAddr::from((address, port));
            Try::same(format!("{to}/udp"), udp(to, &send))
        };
        let quic = at.raw_at(443, Protocol::Udp).into_iter().map(|address| to(address, 443, quic_hello()));
        let time = at.raw_at(123, Protocol::Udp).into_iter();
        let time = time.chain(at.denies(TIME.into(), 123, Protocol::Udp).then_some(TIME));
        Some(quic.chain(time.map(|address| to(address, 123, time_question()))).collect())
    }),
    row("quic", "QUIC to an allowed name's address", |at| {
        // The synthetic address of a name is the gateway's; by UDP it takes nothing without a rule. The first of them is given to the first name asked for.
        let to = SocketAddr::from((Ipv4Addr::new(198, 18, 1, 0), 443));
        let name = at.tls_name.as_ref()?;
        if !at.denies_datagrams(name, 443) {
            return None;
        }
        Some(vec![Try::own(format!("{to}/udp"), udp(to, &quic_hello()))])
    }),
    row("icmp", "ICMP and ICMPv6", |at| {
        let ask = |family, kind, protocol, to: IpAddr, bytes| {
            let ask = Some((SocketAddr::new(to, 0), Raw(bytes)));
            Attempt::Socket(SocketKind { family, kind, protocol, ask })
        };
        let v4 = |kind, word: &str| {
            let address = at.any_raw()?;
            let shown = tls(address, 443, &Hello::nameless());
            // Who may not ping from the host still sees that the target is there.
            Some(Try::shown_by(
                format!("{address} {word}"),
                ask(INET, kind, ICMP, address.into(), ping_v4()),
                shown,
            ))
        };
        let v6 = |kind, word: &str| {
            Try::same(format!("{RAW_V6} {word}"), ask(INET6, kind, ICMPV6, RAW_V6.into(), ping_v6()))
        };
        let all = [v4(DGRAM, "datagram"), v4(RAW, "raw"), Some(v6(DGRAM, "datagram")), Some(v6(RAW, "raw"))];
        Some(all.into_iter().flatten().collect())
    }),
    row("other-protocols", "SCTP, DCCP, GRE, raw", |at| {
        let to = SocketAddr::new(at.any_raw()?.into(), 443);
        let asking = |kind, protocol| {
            let ask = Some((to, Raw(b"hello".to_vec())));
            Attempt::Socket(SocketKind { family: INET, kind, protocol, ask })
        };
        Some(vec![
            Try::own("SCTP", asking(SEQPACKET, SCTP)),
            Try::own("SCTP, one to one", asking(STREAM, SCTP)),
            Try::own("DCCP", asking(DCCP, DCCP_PROTOCOL)),
            Try::own("GRE", socket(INET, RAW, GRE)),
            Try::own("raw", socket(INET, RAW, ANY_RAW)),
            Try::own("raw IPv6", socket(INET6, RAW, ANY_RAW)),
        ])
    }),
    row("packet", "AF_PACKET", |_| {
        // Every protocol, in the byte order of the network.
        let every = u32::from(3_u16.to_be());
        Some(vec![Try::own("raw", socket(17, RAW, every)), Try::own("datagram", socket(17, DGRAM, every))])
    }),
    row("vsock", "AF_VSOCK", |_| {
        Some(vec![Try::own("stream", socket(40, STREAM, 0)), Try::own("datagram", socket(40, DGRAM, 0))])
    }),
    row("other-families", "other socket families", |_| {
        Some(FAMILIES.iter().map(|(family, kind, word)| Try::own(*word, socket(*family, *kind, 0))).collect())
    }),
    row("netlink", "changes of routes, addresses, rules and links", |_| {
        let change = |word: &str, kind, body: &[u8]| {
            Try::own(word, Attempt::Route { message: Raw(routing_change(kind, body)) })
        };
        // The heads of the messages: a default route by the loopback interface (number 1), an address for it, a rule, a dummy interface.
        let route = b"\x02\0\0\0\xfe\x03\0\x01\0\0\0\0\x08\0\x04\0\x01\0\0\0";
        let address = b"\x02\x20\0\0\x01\0\0\0\x08\0\x02\0\x01\x01\x01\x01\x08\0\x01\0\x01\x01\x01\x01";
        let rule = b"\x02\0\0\0\xfe\0\0\x01\0\0\0\0";
        let link = b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\x12\0\x09\0\x01\0dummy\0\0\0";
        Some(vec![
            change("route", 24, route),
            change("address", 20, address),
            change("rule", 32, rule),
            change("link", 16, link),
        ])
    }),
    row("unix", "AF_UNIX to host sockets", |at| {
        at.host.path.as_ref()?;
        let token = Raw(at.host.token.clone().into());
        let path = Attempt::Unix { path: at.host.path.clone(), name: None, token: token.clone() };
        let name = Attempt::Unix { path: None, name: at.host.name.clone().map(Raw), token };
        Some(vec![Try::same("by path", path), Try::same("abstract", name)])
    }),
    row("fast-open", "TCP fast open", |at| {
        let each = |address: Ipv4Addr| {
            let send = vec![Piece::now(Hello::nameless().bytes())];
            let order = TcpAttempt { fast_open: true, ..tcp(address, 443, send, Expect::Tls) };
            Try::same(format!("{address}:443"), Attempt::Tcp(order))
        };
        Some(at.raw_at(443, Protocol::Tcp).into_iter().map(each).collect())
    }),
    row("inherited", "inherited descriptors", |_| Some(vec![Try::own("a program's", Attempt::Inherited)])),
    row("setns", "`setns` to another network", |_| {
        let enter = |path: &str| Try::own(path, Attempt::Enter { path: path.into() });
        Some(vec![enter("/proc/1/ns/net"), enter("/proc/self/ns/net")])
    }),
    row("devices", "TUN device and others", |_| {
        let open = |path: &str| Try::own(path, Attempt::Open { path: path.into() });
        Some(
            ["/dev/net/tun", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/vsock", "/dev/kvm", "/dev/mem"]
                .map(open)
                .into(),
        )
    }),
];

const fn row(id: &'static str, title: &'static str, tries: fn(&Surroundings) -> Option<Vec<Try>>) -> Row {
    let tries = Tries::Of(tries);
    Row { id, group: Group::Transport, title, weight: Weight::Optional, extent: Tried::InFull, tries }
}
