use std::net::{IpAddr, Ipv4Addr};

use sandbar_core::Protocol;

use crate::probe::{Attempt, Expect, Raw, Transport};
use crate::verify::form::{self, METADATA, RAW_V6, ask_outside, get, page, stay, tls, token};
use crate::verify::hello::Hello;
use crate::verify::policy_view::AllowedName;
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
        tries: Tries::Of(|_| Some(vec![Try::own(CONTROL_NAME, page(CONTROL_NAME, 80))])),
    },
    Row {
        id: "allowed-name",
        group: Group::Control,
        title: "a name that the policy allows",
        weight: Weight::Control,
        extent: Tried::Always,
        tries: Tries::Of(|at| match &at.allowed_name {
            AllowedName::None => None,
            AllowedName::Injected => Some(Vec::new()),
            AllowedName::At(name, port) => {
                let attempt = match port {
                    443 => tls(name.as_str(), 443, &Hello::of(name.as_str())),
                    80 => page(name, 80),
                    port => stay(name, *port),
                };
                Some(vec![Try::same(format!("{name}:{port}"), attempt)])
            }
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
        tries: Tries::Of(|at| Some(at.raw_parts().0.into_iter().map(raw).collect())),
    },
    Row {
        id: "raw-ipv4-other",
        group: Group::Direct,
        title: "raw IPv4 of another owner on 443",
        weight: Weight::Needed,
        extent: Tried::Always,
        tries: Tries::Of(|at| {
            let second = at.raw_parts().1;
            (!second.is_empty()).then(|| second.into_iter().map(raw).collect())
        }),
    },
    Row {
        id: "ipv6",
        group: Group::Direct,
        title: "IPv6 literal",
        weight: Weight::Optional,
        extent: Tried::Always,
        tries: Tries::Of(|_| {
            Some(vec![Try::same(format!("[{RAW_V6}]:443"), tls(RAW_V6, 443, &Hello::nameless()))])
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
            Some(at.raw_at(53, Protocol::Udp).into_iter().map(attempt).collect())
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
