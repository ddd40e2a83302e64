use std::net::{IpAddr, Ipv4Addr};

use crate::probe::{Attempt, Expect, Raw, Transport};
use crate::verify::form::{self, METADATA, RAW_V6, ask_outside, get, tls, token};
use crate::verify::hello::Hello;
use crate::verify::row::{Group, Row, Tried, Tries, Try, Weight};
use crate::verify::surroundings::Surroundings;

/// The name that the gateway serves itself under every policy.
const CONTROL_NAME: &str = "control.sandbar.internal";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "control",
        group: Group::Control,
        title: "the gateway's own name, by HTTP",
        weight: Weight::Control,
        extent: Tried::Always,
        tries: Tries::Of(|_| Some(vec![Try::own(CONTROL_NAME, get(CONTROL_NAME, CONTROL_NAME, 80))])),
    },
    Row {
        id: "allowed-name",
        group: Group::Control,
        title: "a name that the policy allows",
        weight: Weight::Control,
        extent: Tried::Always,
        tries: Tries::Of(|at| {
            let secure = at.tls_name.as_deref().map(|name| (name, tls(name, 443, &Hello::of(name))));
            let plain = || at.http_name.as_deref().map(|name| (name, get(name, name, 80)));
            let (name, attempt) = secure.or_else(plain)?;
            Some(vec![Try::same(name, attempt)])
        }),
    },
    Row {
        id: "denied-name",
        group: Group::Direct,
        title: "a name that the policy does not allow",
        weight: Weight::Needed,
        extent: Tried::Always,
        tries: Tries::Of(|at| {
            let name = at.denied_name.as_deref();
            Some(name.map(|name| Try::same(name, tls(name, 443, &Hello::of(name)))).into_iter().collect())
        }),
    },
    Row {
        id: "raw-ipv4",
        group: Group::Direct,
        title: "raw IPv4 on 443",
        weight: Weight::Needed,
        extent: Tried::Always,
        tries: Tries::Of(|at| Some(at.first_raw.iter().copied().map(raw).collect())),
    },
    Row {
        id: "raw-ipv4-other",
        group: Group::Direct,
        title: "raw IPv4 of another owner on 443",
        weight: Weight::Needed,
        extent: Tried::Always,
        tries: Tries::Of(|at| Some(at.second_raw.iter().copied().map(raw).collect())),
    },
    Row {
        id: "ipv6",
        group: Group::Direct,
        title: "IPv6 literal",
        weight: Weight::Optional,
        extent: Tried::Always,
        tries: Tries::Of(|at| {
            let targets = at.not_allowed(&[IpAddr::V6(RAW_V6)]);
            let attempt = |address: IpAddr| {
                Try::same(format!("[{address}]:443"), tls(address, 443, &Hello::nameless()))
            };
            (!targets.is_empty()).then(|| targets.into_iter().map(attempt).collect())
        }),
    },
    Row {
        id: "udp-53",
        group: Group::Dns,
        title: "UDP/53 to a public resolver",
        weight: Weight::Needed,
        extent: Tried::Always,
        tries: Tries::Of(|at| {
            let attempt =
                |address| Try::same(format!("{address}:53/udp"), ask_outside(address, Transport::Udp));
            Some(at.raw().map(attempt).collect())
        }),
    },
    Row {
        id: "metadata",
        group: Group::Direct,
        title: "169.254.169.254",
        weight: Weight::Optional,
        extent: Tried::Always,
        tries: Tries::Of(|_| {
            Some(vec![Try::same(format!("{METADATA}:80"), get(METADATA, "169.254.169.254", 80))])
        }),
    },
    Row {
        id: "host-loopback",
        group: Group::Direct,
        title: "the host's loopback",
        weight: Weight::Needed,
        extent: Tried::Always,
        tries: Tries::Of(|at| {
            let attempt =
                |place: &std::net::SocketAddr| Try::same(place.to_string(), token(*place, &at.host));
            Some(at.host.loopback.iter().map(attempt).collect())
        }),
    },
    Row {
        id: "host-interfaces",
        group: Group::Direct,
        title: "the host's LAN and bridge addresses",
        weight: Weight::Optional,
        extent: Tried::Always,
        tries: Tries::Of(|at| {
            let places = &at.host.interfaces;
            let attempt =
                |place: &std::net::SocketAddr| Try::same(place.to_string(), token(*place, &at.host));
            (!places.is_empty()).then(|| places.iter().map(attempt).collect())
        }),
    },
    Row {
        id: "other-sandbox",
        group: Group::Direct,
        title: "a port of another sandbox",
        weight: Weight::Needed,
        extent: Tried::Always,
        tries: Tries::Of(|at| Some(neighbour(at))),
    },
];

fn raw(address: Ipv4Addr) -> Try {
    Try::same(format!("{address}:443"), tls(address, 443, &Hello::nameless()))
}

/// The place where it is published, and its port at addresses that are in every sandbox.
fn neighbour(at: &Surroundings) -> Vec<Try> {
    let Some(neighbour) = &at.neighbour else { return Vec::new() };
    let attempt = |address: IpAddr, port| {
        Attempt::Tcp(form::tcp(address, port, Vec::new(), Expect::Token(Raw(neighbour.token.clone().into()))))
    };
    let published = attempt(neighbour.published.ip(), neighbour.published.port());
    let inside = |address: Ipv4Addr| {
        let label = format!("{address}:{}", neighbour.port);
        Try::shown_by(label, attempt(address.into(), neighbour.port), published.clone())
    };
    vec![
        Try::same(neighbour.published.to_string(), published.clone()),
        inside(Ipv4Addr::LOCALHOST),
        inside(sandbar_engine::network::GATEWAY_ADDRESS),
    ]
}
