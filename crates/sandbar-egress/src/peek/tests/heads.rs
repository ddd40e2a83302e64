use fastrand::Rng;

use crate::peek::{Chunks, Framing, Head, HeadFlaw, MAX_FIELDS, MAX_HEAD, Peek, check_head, fuzzing};

#[test]
fn a_head_says_where_its_body_ends() {
    for (fields, body) in [
        ("", Framing::Length(0)),
        ("Content-Length: 0\r\n", Framing::Length(0)),
        ("content-length:\t12 \r\n", Framing::Length(12)),
        ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
        ("X: \"a: b\"\r\nY:\r\nZ: \u{fc}\r\n", Framing::Length(0)),
    ] {
        let head = format!("POST /x?y HTTP/1.1\r\nHost: allowed.test\r\n{fields}\r\n");
        let whole = format!("{head}body\n\n");
        assert_eq!(check_head(whole.as_bytes()), Peek::Done(Head { len: head.len(), body }), "{fields:?}");
    }
    assert!(matches!(check_head(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n"), Peek::Done(_)));
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    use HeadFlaw::{Hosts, Http2, Malformed, NotHttp, TooLong};
    let host = "Host: a\r\n";
    let many = "x: y\r\n".repeat(MAX_FIELDS);
    let long = format!("x: {}\r\n", "y".repeat(MAX_HEAD));
    for (head, flaw) in [
        ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), Malformed("a line's end")),
        (format!("GET / HTTP/1.1\r\n{host}a: b\nc: d\r\n\r\n"), Malformed("a line's end")),
        (format!("GET / HTTP/1.1\r\n{host}a: b\rc: d\r\n\r\n"), Malformed("a line's end")),
        (format!("GET / HTTP/1.1\r\n{host}a: b\r\r\n\r\n"), Malformed("a line's end")),
        (format!("GET / HTTP/1.1\r\n{host}a: b\r\n c\r\n\r\n"), Malformed("a field without a colon")),
        (format!("GET / HTTP/1.1\r\n{host}a: b\r\n\tc: d\r\n\r\n"), Malformed("a field's name")),
        (format!("GET / HTTP/1.1\r\n Host: a\r\n{host}\r\n"), Malformed("a field's name")),
        (format!("GET / HTTP/1.1\r\n{host}a : b\r\n\r\n"), Malformed("a field's name")),
        (format!("GET / HTTP/1.1\r\n{host}: b\r\n\r\n"), Malformed("a field's name")),
        (format!("GET / HTTP/1.1\r\n{host}a\0: b\r\n\r\n"), Malformed("a field's name")),
        (format!("GET / HTTP/1.1\r\n{host}a: b\0\r\n\r\n"), Malformed("a field's value")),
        (format!("GET / HTTP/1.1\r\n{host}no colon\r\n\r\n"), Malformed("a field without a colon")),
        (format!("GET  / HTTP/1.1\r\n{host}\r\n"), Malformed("request line")),
        (format!("GET /\tHTTP/1.1\r\n{host}\r\n"), Malformed("request line")),
        (format!("GET / HTTP/1.1 \r\n{host}\r\n"), Malformed("request line")),
        (format!("GET / x HTTP/1.1\r\n{host}\r\n"), Malformed("request line")),
        ("GET /\r\n".to_owned(), Malformed("request line")),
        (format!("GET / HTTP/1.2\r\n{host}\r\n"), NotHttp),
        (format!("GET / HTTP/01.1\r\n{host}\r\n"), NotHttp),
        (format!("GET / http/1.1\r\n{host}\r\n"), NotHttp),
        (format!("\r\nGET / HTTP/1.1\r\n{host}\r\n"), NotHttp),
        (format!(" GET / HTTP/1.1\r\n{host}\r\n"), NotHttp),
        (format!("G{{T / HTTP/1.1\r\n{host}\r\n"), NotHttp),
        ("A".repeat(40), NotHttp),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), Http2),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), Hosts),
        (format!("GET / HTTP/1.1\r\n{host}hOST: a\r\n\r\n"), Hosts),
        (format!("GET / HTTP/1.1\r\n{host}{many}\r\n"), TooLong),
        (format!("GET / HTTP/1.1\r\n{host}{long}\r\n"), TooLong),
        (format!("GET /{}", "y".repeat(MAX_HEAD)), TooLong),
    ] {
        assert_eq!(check_head(head.as_bytes()), Peek::Bad(flaw), "{:?}", &head[..head.len().min(80)]);
    }
    for (fields, what) in [
        ("Content-Length: 1\r\nContent-Length: 1\r\n", "more than one content-length"),
        ("Content-Length: 1, 1\r\n", "content-length"),
        ("Content-Length: +1\r\n", "content-length"),
        ("Content-Length: -1\r\n", "content-length"),
        ("Content-Length: 0x1\r\n", "content-length"),
        ("Content-Length: 1 1\r\n", "content-length"),
        ("Content-Length:\r\n", "content-length"),
        ("Content-Length: 18446744073709551616\r\n", "content-length"),
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "content-length with transfer-encoding"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", "content-length with transfer-encoding"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "transfer-encoding"),
        ("Transfer-Encoding: gzip, chunked\r\n", "transfer-encoding"),
        ("Transfer-Encoding: identity\r\n", "transfer-encoding"),
        ("Transfer-Encoding: xchunked\r\n", "transfer-encoding"),
        ("Transfer-Encoding: chunked;q=1\r\n", "transfer-encoding"),
        ("Transfer-Encoding: \u{b}chunked\r\n", "a field's value"),
        ("Transfer-Encoding:\r\n", "transfer-encoding"),
    ] {
        let head = format!("POST / HTTP/1.1\r\n{host}{fields}\r\n");
        assert_eq!(check_head(head.as_bytes()), Peek::Bad(Malformed(what)), "{fields:?}");
    }
    let old = format!("POST / HTTP/1.0\r\n{host}Transfer-Encoding: chunked\r\n\r\n");
    assert_eq!(check_head(old.as_bytes()), Peek::Bad(Malformed("transfer-encoding")));
}

#[test]
fn a_chunked_body_ends_where_it_says() {
    let good = b"5;x=y\r\nhello\r\n00A\r\n0123456789\r\n0\r\nx: y\r\n\r\n";
    let mut chunks = Chunks::default();
    let more = [&good[..], b"GET / HTTP/1.1\r\n"].concat();
    assert_eq!(chunks.advance(&more), Ok(good.len()));
    assert!(chunks.is_over());
    for bad in [
        "\r\n",
        "g\r\n",
        "-1\r\n",
        "+1\r\n",
        " 1\r\n",
        "0x1\r\n",
        "1 \r\na",
        "5\nhello",
        "5\rhello",
        "5;\n",
        "5;x\ny\r\n",
        "3\r\nabcd\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "0\r\n\n",
        "0\r\nHost: evil.test\r\n\r\n",
        "0\r\nContent-Length: 5\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\n folded\r\n\r\n",
        "1000000000000000\r\n",
    ] {
        assert!(Chunks::default().advance(bad.as_bytes()).is_err(), "{bad:?}");
    }
    let endless = ["1;", &"x".repeat(1000)].concat();
    assert!(Chunks::default().advance(endless.as_bytes()).is_err());
    let trailers = ["0\r\n", &"x: y\r\n".repeat(MAX_HEAD)].concat();
    assert!(Chunks::default().advance(trailers.as_bytes()).is_err());
}

/// Heads of all sorts, put together from what matters; what is read is compared with second readers. `$SANDBAR_SOAK` says how many.
#[test]
fn generated_heads_are_read_as_second_readers_read_them() {
    const LINES: &[&str] = &[
        "Host: allowed.test",
        "host:evil.test",
        "Content-Length: 5",
        "Content-Length: 0",
        "content-length : 7",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: x",
        " folded: yes",
        "X: y",
        "X\t: y",
        "Connection: close",
        "",
        "GET / HTTP/1.1",
    ];
    const ENDS: &[&str] = &["\n", "\r", "\r\r\n", "\r\n\r\n", "\0\r\n", ""];
    let size = std::env::var("SANDBAR_SOAK").ok().and_then(|size| size.parse().ok()).unwrap_or(10_000);
    let mut random = Rng::with_seed(5);
    let mut good = 0;
    for _ in 0..size {
        let oddness = random.u8(..3) * 10;
        let end = |random: &mut Rng| {
            if random.u8(..100) < oddness { random.choice(ENDS).copied().unwrap_or_default() } else { "\r\n" }
        };
        let mut head = "POST /x HTTP/1.1".to_owned() + end(&mut random) + LINES[0] + end(&mut random);
        for _ in 0..random.usize(..4) {
            head += random.choice(&LINES[if oddness == 0 { 2 } else { 0 }..]).copied().unwrap_or_default();
            head += end(&mut random);
        }
        head += "\r\n5\r\nhello\r\n0\r\n\r\n";
        fuzzing::request_head(head.as_bytes());
        good += usize::from(matches!(check_head(head.as_bytes()), Peek::Done(_)));
    }
    assert!(good > size / 20, "{good} of {size} are heads");
}
