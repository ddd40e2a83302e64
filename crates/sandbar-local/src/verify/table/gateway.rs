use std::net::{Ipv4Addr, SocketAddr};

use sandbar_engine::network::{GATEWAY_ADDRESS as ADDRESS, GATEWAY_PORT as PORT};

use crate::probe::{Attempt, Expect, Piece};
use crate::verify::bytes::request;
use crate::verify::form::{tcp, tls};
use crate::verify::hello::Hello;
use crate::verify::row::{Group, Row, Tried, Tries, Try, Weight};
use crate::verify::surroundings::Surroundings;

/// An address of the gateway's range that no name was given: the last but one.
const UNASSIGNED: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);
/// Where services have their metrics or their control, in other products.
const CONTROL_PORTS: &[u16] = &[80, 443, 2019, 8080, 9090, 9901, 15_000, 15_021, 15_090];

pub(super) const ROWS: &[Row] = &[
    row("gateway-port", "a direct connection to the gateway's own port", |_| {
        let send = |bytes| vec![Piece::now(bytes)];
        let say = |label: &str, bytes: Vec<u8>| {
            Try::own(label, Attempt::Tcp(tcp(ADDRESS, PORT, send(bytes), Expect::Anything)))
        };
        Some(vec![
            say("HTTP", request(&["GET / HTTP/1.1", "Host: control.sandbar.internal"])),
            say("TLS", Hello::of("control.sandbar.internal").bytes()),
        ])
    }),
    row("gateway-bind", "something inside that takes the gateway's port", |_| {
        let bind = |port: u16| {
            let to = SocketAddr::from((ADDRESS, port));
            Try::own(to.to_string(), Attempt::Bind { to })
        };
        Some(vec![bind(PORT), bind(53)])
    }),
    row("gateway-control", "the gateway's metrics or control", |_| {
        let request = request(&["GET /metrics HTTP/1.1", "Host: localhost", "Connection: close"]);
        let each = |port: &u16| {
            let attempt = tcp(ADDRESS, *port, vec![Piece::now(request.clone())], Expect::Http { allowed: 0 });
            Try::own(format!("{ADDRESS}:{port}"), Attempt::Tcp(attempt))
        };
        Some(CONTROL_PORTS.iter().map(each).collect())
    }),
    row("gateway-unassigned", "an address of the gateway's that stands for no name", |at| {
        let name = at.tls_name.clone().unwrap_or_else(|| "example.com".to_owned());
        Some(vec![Try::own(format!("{UNASSIGNED}:443"), tls(UNASSIGNED, 443, &Hello::of(name)))])
    }),
];

const fn row(id: &'static str, title: &'static str, tries: fn(&Surroundings) -> Option<Vec<Try>>) -> Row {
    let tries = Tries::Of(tries);
    Row { id, group: Group::Gateway, title, weight: Weight::Optional, extent: Tried::InFull, tries }
}
