use crate::probe::{Attempt, Expect, Piece, Question, Raw, TcpAttempt};
use crate::verify::bytes::request;
use crate::verify::form::{ask, get, tcp, tls};
use crate::verify::hello::Hello;
use crate::verify::row::{Group, Row, Tried, Tries, Try, Weight};
use crate::verify::surroundings::Surroundings;

/// Bytes of padding that no ordinary hello needs: beyond what a gateway may read, and what fits in one record.
const OVERSIZE: usize = 60_000;
/// Pause before the second half of a slow hello, in milliseconds: longer than a gateway may wait.
const SLOW_MS: u64 = 12_000;
/// How long the slow row may take as a whole, in milliseconds.
const SLOW_PATIENCE_MS: u64 = 15_000;

pub(super) const ROWS: &[Row] = &[
    row("dns-lookalikes", "names that only look like an allowed one, in the resolver", |at| {
        let (allowed, denied) = (any_allowed(at)?, at.denied_name.as_deref()?);
        let (label, rest) = allowed.split_once('.').unwrap_or((allowed, denied));
        let known = ask(Question::address(denied));
        let of = |label: &str, question| Try::shown_by(label, ask(question), known.clone());
        let name = |text: &str| Question::address(text);
        let raw = |labels: &[&[u8]]| Question {
            labels: labels.iter().map(|label| Raw(label.to_vec())).collect(),
            record: 1,
        };
        let joined = |middle: &[u8]| [allowed.as_bytes(), middle, denied.as_bytes()].concat();
        // Beside the name that is asked for by itself another rule may allow this one.
        let evil = format!("evil{allowed}");
        let evil = at.denies_name(&evil).then(|| of("evil+allowed", name(&evil)));
        let others = [
            of("allowed.denied", name(&format!("{allowed}.{denied}"))),
            of("allowed, then NUL, in one label", raw(&[&joined(b"\0")])),
            of("allowed as one label with dots", raw(&[allowed.as_bytes()])),
            of("allowed as one label, then denied", raw(&[allowed.as_bytes(), denied.as_bytes()])),
            of("NUL in a label", raw(&[label.as_bytes(), b"a\0b", rest.as_bytes()])),
            of("denied, by upper case", name(&denied.to_uppercase())),
            of("denied, by a homograph", raw(&[homograph(label).as_bytes(), rest.as_bytes()])),
            of("denied, 250 bytes long", name(&format!("{}{denied}", "a.".repeat(119)))),
        ];
        Some(others.into_iter().chain(evil).collect())
    }),
    sni("sni-denied", "SNI is a denied name", |_, denied| vec![Hello::of(denied)]),
    sni("sni-nul", "SNI with a NUL byte", |allowed, denied| {
        vec![
            Hello::of(format!("{denied}\0.{allowed}")),
            Hello::of(format!("{allowed}\0")),
            Hello::of(format!("{allowed}\0.{denied}")),
        ]
    }),
    sni("sni-dot-case", "SNI is a denied name with a trailing dot or in upper case", |_, denied| {
        vec![
            Hello::of(format!("{denied}.")),
            Hello::of(denied.to_uppercase()),
            Hello::of(format!(".{denied}")),
        ]
    }),
    sni("sni-homograph", "SNI is a homograph", |allowed, _| {
        vec![Hello::of(homograph(allowed)), Hello::of(format!("xn--{allowed}"))]
    }),
    sni("sni-lookalike", "SNI is `allowed.denied`, or `evil` and allowed", |allowed, denied| {
        vec![
            Hello::of(format!("{allowed}.{denied}")),
            Hello::of(format!("evil{allowed}")),
            Hello::of(format!("www.{allowed}")),
        ]
    }),
    sni("sni-userinfo", "SNI with userinfo tricks", |allowed, denied| {
        let with = |mark: char| Hello::of(format!("{allowed}{mark}{denied}"));
        vec![with('@'), with('#'), with('/'), with('\\'), with('%'), with(':'), with(' ')]
    }),
    sni("sni-long", "SNI is very long", |allowed, _| {
        vec![
            Hello::of(format!("{}{allowed}", "a.".repeat(150))),
            Hello::of(format!("{}.{allowed}", "a".repeat(64))),
        ]
    }),
    sni("sni-empty", "empty SNI, and none", |_, _| vec![Hello::of(""), Hello::nameless()]),
    sni("sni-address", "SNI is an address", |_, _| {
        vec![
            Hello::of("1.1.1.1"),
            Hello::of("[2606:4700:4700::1111]"),
            Hello::of("16843009"),
            Hello::of("0x1010101"),
        ]
    }),
    sni("sni-two", "two SNI entries", |allowed, denied| {
        vec![
            Hello::of(allowed).and(denied),
            Hello::of(denied).and(allowed),
            Hello::of(allowed).again(denied),
            Hello::of(denied).again(allowed),
            Hello::of(allowed).and(allowed),
        ]
    }),
    row("sni-split", "a denied SNI split over segments and records", |at| {
        let (allowed, denied) = (at.tls_name.as_deref()?, at.denied_name.as_deref()?);
        let hello = Hello::of(denied);
        let segments = |bytes: Vec<u8>, size: usize| -> Vec<Piece> {
            let piece = |chunk: &[u8]| Piece { bytes: Raw(chunk.to_vec()), after_ms: 2 };
            bytes.chunks(size).map(piece).collect()
        };
        let over = |label: &str, send| {
            Try::shown_by(label, Attempt::Tcp(tcp(allowed, 443, send, Expect::Tls)), shown(allowed))
        };
        Some(vec![
            over("segments of 40 bytes", segments(hello.bytes(), 40)),
            over("records of 1 byte", vec![Piece::now(hello.records(1))]),
            over("records of 60 bytes, segments of 11", segments(hello.records(60), 11)),
        ])
    }),
    sni("hello-oversized", "an oversized hello", |_, denied| vec![Hello::of(denied).padded(OVERSIZE)]),
    row("hello-slow", "a slow hello", |at| {
        let (allowed, denied) = (at.tls_name.as_deref()?, at.denied_name.as_deref()?);
        let bytes = Hello::of(denied).bytes();
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        let send = vec![Piece::now(first), Piece { bytes: Raw(rest.to_vec()), after_ms: SLOW_MS }];
        let order = TcpAttempt { patience_ms: SLOW_PATIENCE_MS, ..tcp(allowed, 443, send, Expect::Tls) };
        Some(vec![Try::shown_by(allowed, Attempt::Tcp(order), shown(allowed))])
    }),
    row("plain-on-443", "plain text on 443", |at| {
        let (allowed, denied) = (at.tls_name.as_deref()?, at.denied_name.as_deref()?);
        let plain = |label: &str, bytes: Vec<u8>| {
            Try::shown_by(
                label,
                Attempt::Tcp(tcp(allowed, 443, vec![Piece::now(bytes)], Expect::Tls)),
                shown(allowed),
            )
        };
        Some(vec![
            plain("HTTP", request(&["GET / HTTP/1.1", &format!("Host: {denied}")])),
            plain("HTTP with the allowed host", request(&["GET / HTTP/1.1", &format!("Host: {allowed}")])),
            plain("SSH", b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()),
        ])
    }),
    row("tls-on-80", "TLS on 80", |at| {
        let (allowed, denied) = (at.http_name.as_deref()?, at.denied_name.as_deref()?);
        let over = |name: &str| {
            let send = vec![Piece::now(Hello::of(name).bytes())];
            let attempt = Attempt::Tcp(tcp(allowed, 80, send, Expect::Http { allowed: 0 }));
            Try::shown_by(name, attempt, get(allowed, allowed, 80))
        };
        Some(vec![over(denied), over(allowed)])
    }),
];

const fn row(id: &'static str, title: &'static str, tries: fn(&Surroundings) -> Option<Vec<Try>>) -> Row {
    Row {
        id,
        group: Group::Names,
        title,
        weight: Weight::Optional,
        extent: Tried::InFull,
        tries: Tries::Of(tries),
    }
}

const fn sni(id: &'static str, title: &'static str, hellos: fn(&str, &str) -> Vec<Hello>) -> Row {
    let tries = Tries::Hellos(hellos);
    Row { id, group: Group::Names, title, weight: Weight::Optional, extent: Tried::InFull, tries }
}

fn any_allowed(at: &Surroundings) -> Option<&str> {
    at.tls_name.as_deref().or(at.http_name.as_deref())
}

/// How it is shown that the allowed name is there: the host's own handshake with it.
fn shown(allowed: &str) -> Attempt {
    tls(allowed, 443, &Hello::of(allowed))
}

/// The name with letters of another alphabet that look the same.
fn homograph(name: &str) -> String {
    name.replace('a', "\u{430}").replace('e', "\u{435}").replace('o', "\u{43e}").replace('p', "\u{440}")
}
