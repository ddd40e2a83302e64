use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The host's own address: where the gateway and the tests run.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The host's own IPv6 address.
pub const HOST_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
/// A second address of the host, as a bridge for containers has one.
pub const HOST_BRIDGE: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 1);
/// The host's router: an address of the outside.
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The host's router by IPv6.
pub const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
/// Another machine in the host's own network.
pub const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
/// What `/etc/resolv.conf` names. Any other address answers queries from the same zone.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(1, 1, 1, 1);

/// Addresses that a sandbox must never reach, whatever names lead to them: metadata services and private networks. All answer.
pub const FORBIDDEN: &[IpAddr] = &[
    v4(169, 254, 169, 254),
    v4(169, 254, 170, 2),
    v4(100, 100, 100, 200),
    v4(168, 63, 129, 16),
    v4(10, 0, 0, 5),
    v4(172, 17, 0, 1),
    v4(192, 168, 1, 1),
    v4(100, 64, 0, 1),
    v4(10, 77, 0, 3),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5)),
];

/// Well-known public addresses. All answer.
pub const PUBLIC: &[IpAddr] = &[
    v4(1, 1, 1, 1),
    v4(8, 8, 8, 8),
    v4(9, 9, 9, 9),
    v4(93, 184, 215, 14),
    IpAddr::V6(Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111)),
    IpAddr::V6(Ipv6Addr::new(0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe)),
];

/// TCP ports that somebody listens on, at every address. A connection to another port is refused, and seen all the same.
///
/// Every port finds out by the first bytes what is spoken: TLS (any name gets a certificate), HTTP/1.1, HTTP/2, or else bytes that come
/// back. 53 and 853 speak DNS; 21, 22, 25 and 587 greet first.
pub const TCP_PORTS: &[u16] = &[
    21, 22, 25, 53, 80, 110, 143, 443, 587, 853, 1080, 2375, 3000, 3128, 3306, 4443, 5000, 5432, 6379, 8000,
    8080, 8443, 8888, 9000, 9418, 9999, 27017, 31337,
];

/// UDP ports that somebody listens on, at every address: 53 speaks DNS, the others send back what comes. A packet to another port is
/// seen all the same.
pub const UDP_PORTS: &[u16] =
    &[53, 67, 69, 123, 161, 443, 500, 514, 853, 1900, 3478, 4433, 5353, 8443, 9000, 9999, 51820];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}
