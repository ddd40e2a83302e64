use sandbar_core::Protocol;

use crate::probe::{Question, Transport};
use crate::verify::form::{ask, ask_outside, tls};
use crate::verify::hello::Hello;
use crate::verify::row::{Group, Row, Tried, Tries, Try, Weight};
use crate::verify::surroundings::Surroundings;

/// Names at which public resolvers speak DNS over HTTPS.
const DOH_NAMES: &[&str] = &["cloudflare-dns.com", "dns.google", "dns.quad9.net"];
/// Record types by which data or other ways in are commonly had: TXT, NULL, ANY, CNAME, MX, NS, SRV, SVCB, HTTPS, AAAA.
const TYPES: &[(u16, &str)] = &[
    (16, "TXT"),
    (10, "NULL"),
    (255, "ANY"),
    (5, "CNAME"),
    (15, "MX"),
    (2, "NS"),
    (33, "SRV"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (28, "AAAA"),
];

pub(super) const ROWS: &[Row] = &[
    row("tcp-53", "TCP/53 to a public resolver", |at| {
        Some(
            at.raw_at(53, Protocol::Tcp)
                .into_iter()
                .map(|address| Try::same(format!("{address}:53"), ask_outside(address, Transport::Tcp)))
                .collect(),
        )
    }),
    row("dot", "DNS over TLS", |at| {
        let hello = Hello::of("one.one.one.one");
        Some(
            at.raw_at(853, Protocol::Tcp)
                .into_iter()
                .map(|address| Try::same(format!("{address}:853"), tls(address, 853, &hello)))
                .collect(),
        )
    }),
    row("doh-address", "DNS over HTTPS at an address", |at| {
        let hello = Hello::of("cloudflare-dns.com");
        Some(
            at.raw_at(443, Protocol::Tcp)
                .into_iter()
                .map(|address| Try::same(format!("{address}:443"), tls(address, 443, &hello)))
                .collect(),
        )
    }),
    row("doh-name", "DNS over HTTPS at a denied name", |at| {
        let denied = DOH_NAMES.iter().filter(|name| at.denies_name(name));
        let tries: Vec<_> = denied.map(|name| Try::same(*name, tls(*name, 443, &Hello::of(*name)))).collect();
        (!tries.is_empty()).then_some(tries)
    }),
    row("denied-name-dns", "a denied name through the sandbox's resolver", |at| {
        let name = at.denied_name.as_deref()?;
        let known = ask(Question::address(name));
        let by_type = |(record, word): &(u16, &str)| {
            Try::shown_by(format!("{name} {word}"), ask(Question::of_type(name, *record)), known.clone())
        };
        Some([Try::same(name, known.clone())].into_iter().chain(TYPES.iter().map(by_type)).collect())
    }),
    row("record-types", "TXT, NULL, ANY and others of an allowed name", |at| {
        let name = at.tls_name.as_deref().or(at.http_name.as_deref())?;
        let by_type = |(record, word): &(u16, &str)| {
            Try::own(format!("{name} {word}"), ask(Question::of_type(name, *record)))
        };
        Some(TYPES.iter().map(by_type).collect())
    }),
];

const fn row(id: &'static str, title: &'static str, tries: fn(&Surroundings) -> Option<Vec<Try>>) -> Row {
    Row {
        id,
        group: Group::Dns,
        title,
        weight: Weight::Optional,
        extent: Tried::InFull,
        tries: Tries::Of(tries),
    }
}
