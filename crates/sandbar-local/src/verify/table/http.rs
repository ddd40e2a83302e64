use crate::verify::bytes::request;
use crate::verify::row::{Group, Row, Spoken, Tried, Tries, Weight};

pub(super) const ROWS: &[Row] = &[
    row("host-mismatch", "Host is another name", |allowed, denied| {
        let of = |label, host: &str| one(label, &["GET / HTTP/1.1", &format!("Host: {host}")]);
        vec![
            of("denied", denied),
            of("denied with a port", &format!("{denied}:80")),
            of("allowed at another port", &format!("{allowed}:8080")),
            of("allowed.denied", &format!("{allowed}.{denied}")),
            of("userinfo", &format!("{allowed}@{denied}")),
            of("two in one", &format!("{allowed}, {denied}")),
            of("an address", "1.1.1.1"),
            of("empty", ""),
            one("none", &["GET / HTTP/1.1", "Accept: */*"]),
            one("none, by HTTP/1.0", &["GET / HTTP/1.0", "Accept: */*"]),
        ]
    }),
    row("absolute-form", "an absolute URI and a Host that differ", |allowed, denied| {
        let of = |label, uri: &str, host: &str| {
            one(label, &[&format!("GET {uri} HTTP/1.1"), &format!("Host: {host}")])
        };
        vec![
            of("denied URI", &format!("http://{denied}/"), allowed),
            of("denied Host", &format!("http://{allowed}/"), denied),
            of("userinfo", &format!("http://{allowed}@{denied}/"), allowed),
            of("https", &format!("https://{denied}/"), allowed),
            of("two slashes", &format!("//{denied}/"), denied),
        ]
    }),
    row("host-twice", "two Host headers", |allowed, denied| {
        let of = |label, lines: &[&str]| one(label, &[&["GET / HTTP/1.1"], lines].concat());
        let (good, bad) = (format!("Host: {allowed}"), format!("Host: {denied}"));
        vec![
            of("allowed, denied", &[&good, &bad]),
            of("denied, allowed", &[&bad, &good]),
            of("folded", &[&good, &format!(" {denied}")]),
            of("space before the colon", &[&good, &format!("Host : {denied}")]),
            of("NUL in the value", &[&format!("Host: {allowed}\0{denied}")]),
            of("bare line feed", &[&format!("{good}\n{bad}")]),
            of("bare carriage return", &[&format!("{good}\r{bad}")]),
        ]
    }),
    row("keep-alive", "a denied request on a kept-alive connection", |allowed, denied| {
        let (good, bad) = (get(allowed), get(denied));
        vec![
            Spoken { label: "second", bytes: [&good[..], &bad].concat(), allowed: 1 },
            Spoken { label: "third", bytes: [&good[..], &good, &bad].concat(), allowed: 2 },
        ]
    }),
    row("smuggling", "smuggling on a kept-alive connection", |allowed, denied| {
        let bad = get(denied);
        let host = format!("Host: {allowed}");
        let length = format!("Content-Length: {}", bad.len() + 5);
        let short = "Content-Length: 4";
        let chunked = "Transfer-Encoding: chunked";
        let with = |label, lines: &[&str], body: &[u8]| {
            let head = request(&[&["POST / HTTP/1.1", &host], lines].concat());
            // At most the honest part of it is answered.
            Spoken { label, bytes: [&head[..], body].concat(), allowed: 1 }
        };
        let hidden = [b"0\r\n\r\n", &bad[..]].concat();
        vec![
            with("length and chunks", &[&length, chunked], &hidden),
            with("chunks and length", &[chunked, short], &hidden),
            with("two lengths", &[short, &length], &hidden),
            with("chunks by another name", &["Transfer-Encoding: xchunked", &length], &hidden),
            with("chunks with a space", &["Transfer-Encoding : chunked", &length], &hidden),
            with("chunks in two values", &["Transfer-Encoding: identity, chunked", short], &hidden),
            with("a sign before the length", &[&format!("Content-Length: +{}", bad.len())], &bad),
            with("a chunk length too long", &[chunked], &[b"00000000000000000\r\n\r\n", &bad[..]].concat()),
        ]
    }),
    row("connect", "CONNECT to a denied host", |allowed, denied| {
        let of = |label, to: &str, host: &str| {
            one(label, &[&format!("CONNECT {to} HTTP/1.1"), &format!("Host: {host}")])
        };
        vec![
            of("denied", &format!("{denied}:443"), &format!("{denied}:443")),
            of("denied with the allowed Host", &format!("{denied}:443"), allowed),
            of("an address", "1.1.1.1:443", allowed),
            of("allowed", &format!("{allowed}:80"), allowed),
        ]
    }),
    row("upgrade", "upgrade to another protocol", |allowed, _| {
        let host = format!("Host: {allowed}");
        let of = |label, lines: &[&str]| {
            one(label, &[&["GET / HTTP/1.1", &host, "Connection: Upgrade"], lines].concat())
        };
        vec![
            of("h2c", &["Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"]),
            of("TLS", &["Upgrade: TLS/1.2"]),
            of("an unknown one", &["Upgrade: anything"]),
            of("two", &["Upgrade: websocket, anything"]),
            Spoken {
                label: "HTTP/2 without asking",
                bytes: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
                allowed: 0,
            },
        ]
    }),
];

const fn row(id: &'static str, title: &'static str, requests: fn(&str, &str) -> Vec<Spoken>) -> Row {
    let tries = Tries::Requests(requests);
    Row { id, group: Group::Http, title, weight: Weight::Optional, extent: Tried::InFull, tries }
}

/// A request of which nothing may be answered.
fn one(label: &'static str, lines: &[&str]) -> Spoken {
    Spoken { label, bytes: request(lines), allowed: 0 }
}

fn get(host: &str) -> Vec<u8> {
    request(&["GET / HTTP/1.1", &format!("Host: {host}")])
}
