use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sandbar_core::Protocol;

use crate::verify::form::{GROUP, OTHER_METADATA, PRIVATE, get, tls, token, udp};
use crate::verify::hello::Hello;
use crate::verify::row::{Group, Row, Tried, Tries, Try, Weight};
use crate::verify::surroundings::Surroundings;

/// Ports that a raw address is tried at, next to 443: with TLS, plain, and where other services are.
const TLS_PORTS: &[u16] = &[853, 8443];
const PLAIN_PORTS: &[u16] = &[80, 8080];
/// Names at which clouds have their metadata.
const METADATA_NAMES: &[&str] = &["metadata.google.internal", "metadata", "instance-data.ec2.internal"];
/// The well-known prefix for addresses of version 4 in version 6 (RFC 6052).
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

pub(super) const ROWS: &[Row] = &[
    row("raw-ports", "raw IPv4 on other ports", |at| {
        let at_port =
            |port: u16| at.raw_at(port, Protocol::Tcp).into_iter().map(move |address| (address, port));
        let secure = TLS_PORTS.iter().flat_map(|port| at_port(*port));
        let secure = secure.map(|(to, port)| (to, port, tls(to, port, &Hello::nameless())));
        let plain = PLAIN_PORTS.iter().flat_map(|port| at_port(*port));
        let plain = plain.map(|(to, port)| (to, port, get(to, &to.to_string(), port)));
        let all = secure.chain(plain);
        Some(all.map(|(to, port, attempt)| Try::same(format!("{to}:{port}"), attempt)).collect())
    }),
    row("v4-mapped", "v4-mapped IPv6", |at| {
        Some(
            at.raw_at(443, Protocol::Tcp)
                .into_iter()
                .map(|address| {
                    let mapped = address.to_ipv6_mapped();
                    Try::same(format!("[{mapped}]:443"), tls(mapped, 443, &Hello::nameless()))
                })
                .collect(),
        )
    }),
    row("nat64", "NAT64", |at| {
        Some(
            at.raw_at(443, Protocol::Tcp)
                .into_iter()
                .map(|address| {
                    let through = nat64(address);
                    // A host without such a gateway still reaches what is behind it.
                    Try::shown_by(
                        format!("[{through}]:443"),
                        tls(through, 443, &Hello::nameless()),
                        tls(address, 443, &Hello::nameless()),
                    )
                })
                .collect(),
        )
    }),
    row("number-forms", "decimal, octal and hex forms of an address", |at| {
        let address = at.any_raw()?;
        let shown = tls(address, 443, &Hello::nameless());
        let attempt = |text: String| {
            Try::shown_by(text.clone(), tls(text.as_str(), 443, &Hello::nameless()), shown.clone())
        };
        Some(number_forms(address).into_iter().map(attempt).collect())
    }),
    row("unspecified", "`0.0.0.0` and `::`", |at| {
        let attempt = |place: &SocketAddr| {
            let any: IpAddr =
                if place.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let to = SocketAddr::new(any, place.port());
            Try::same(to.to_string(), token(to, &at.host))
        };
        Some(at.host.loopback.iter().map(attempt).collect())
    }),
    row("other-metadata", "the other clouds' metadata addresses", |_| {
        let attempt = |address: IpAddr| Try::same(place(address), get(address, &address.to_string(), 80));
        // No rule means them, whatever its range.
        Some(OTHER_METADATA.iter().copied().map(attempt).collect())
    }),
    row("metadata-names", "the clouds' metadata names", |_| {
        Some(METADATA_NAMES.iter().map(|name| Try::same(*name, get(*name, name, 80))).collect())
    }),
    row("private", "RFC 1918, CGNAT, ULA", |at| {
        let targets = PRIVATE.iter().copied().filter(|address| at.denies(*address, 80, Protocol::Tcp));
        let attempt = |address: IpAddr| Try::same(place(address), get(address, &address.to_string(), 80));
        some(targets.map(attempt).collect())
    }),
    row("multicast-broadcast", "multicast and broadcast", |at| {
        let to = |address: IpAddr, port: u16, send: &[u8]| {
            let to = SocketAddr::new(address, port);
            Try::same(format!("{to}/udp"), udp(to, send))
        };
        // Questions of the protocols that live there, DNS of the local network and discovery of devices; and the host's own service.
        let dns = b"\0\0\0\0\0\x01\0\0\0\0\0\0\x09_services\x07_dns-sd\x04_udp\x05local\0\0\x0c\0\x01";
        let discovery = b"M-SEARCH * HTTP/1.1\r\nHost: 239.255.255.250:1900\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\nST: ssdp:all\r\n\r\n";
        let mut tries = vec![
            to(Ipv4Addr::new(224, 0, 0, 251).into(), 5353, dns),
            to(Ipv4Addr::new(239, 255, 255, 250).into(), 1900, discovery),
            to(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb).into(), 5353, dns),
        ];
        if let Some(port) = at.host.datagrams {
            tries.push(to(GROUP.into(), port, b"anybody?"));
            tries.push(to(Ipv4Addr::BROADCAST.into(), port, b"anybody?"));
        }
        Some(tries)
    }),
    row("host-udp", "the host's addresses by UDP", |at| {
        let port = at.host.datagrams?;
        let places = at.host.loopback.iter().chain(&at.host.interfaces).filter(|place| place.is_ipv4());
        let attempt = |place: &SocketAddr| {
            let to = SocketAddr::new(place.ip(), port);
            Try::same(format!("{to}/udp"), udp(to, b"anybody?"))
        };
        Some(places.map(attempt).collect())
    }),
];

const fn row(id: &'static str, title: &'static str, tries: fn(&Surroundings) -> Option<Vec<Try>>) -> Row {
    Row {
        id,
        group: Group::Direct,
        title,
        weight: Weight::Optional,
        extent: Tried::InFull,
        tries: Tries::Of(tries),
    }
}

/// No attempts are no row.
fn some(tries: Vec<Try>) -> Option<Vec<Try>> {
    (!tries.is_empty()).then_some(tries)
}

fn place(address: IpAddr) -> String {
    SocketAddr::new(address, 80).to_string()
}

fn nat64(address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(NAT64.to_bits() | u128::from(address.to_bits()))
}

/// What `inet_aton` takes for the address next to its usual form: one number in base ten, sixteen and eight, parts in other bases, and fewer parts.
fn number_forms(address: Ipv4Addr) -> Vec<String> {
    let number = u32::from(address);
    let [a, b, c, d] = address.octets();
    vec![
        number.to_string(),
        format!("{number:#x}"),
        format!("0{number:o}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("{a}.{}", number & 0x00ff_ffff),
        format!("{address}."),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_an_address_mean_it() {
        let forms = number_forms(Ipv4Addr::new(1, 1, 1, 1));
        for wanted in
            ["16843009", "0x1010101", "0100200401", "01.01.01.01", "0x1.0x1.0x1.0x1", "1.65793", "1.1.1.1."]
        {
            assert!(forms.iter().any(|form| form == wanted), "{wanted}: {forms:?}");
        }
        assert_eq!(nat64(Ipv4Addr::new(1, 2, 3, 4)).to_string(), "64:ff9b::102:304");
    }
}
