use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use proptest::prelude::*;

use super::attempt::*;
use super::reply::{End, is_settled, judge};
use super::tried::Outcome;
use super::work::{Numbered, serve};
use super::{dns, kernel, tcp};

const DENIED: &[u8] = b"HTTP/1.1 403 Forbidden\r\nX-Sandbar-Egress: denied\r\ncontent-length: 2\r\n\r\nno";
const FAILED: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\nx-sandbar-egress: failed\r\n\r\nno";
const GRANTED: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn outcome(expect: &Expect, bytes: &[u8], end: End) -> Outcome {
    judge(expect, bytes, end).0
}

#[test]
fn a_refusal_is_told_from_an_answer() {
    let http = |allowed| Expect::Http { allowed };
    let both = [GRANTED, DENIED].concat();
    for (expect, bytes, end, wanted) in [
        (Expect::Anything, &b""[..], End::Closed, Outcome::Refused),
        (Expect::Anything, b"", End::Reset, Outcome::Refused),
        (Expect::Anything, b"", End::Silent, Outcome::Unclear),
        (Expect::Anything, b"x", End::Silent, Outcome::Reached),
        (Expect::Tls, b"\x15\x03\x03\x00\x02\x02\x70", End::Closed, Outcome::Refused),
        (Expect::Tls, b"\x15", End::Closed, Outcome::Refused),
        (Expect::Tls, b"\x16\x03\x03", End::Silent, Outcome::Reached),
        (Expect::Tls, b"SSH-2.0", End::Silent, Outcome::Reached),
        (Expect::Token(Raw(b"abc".into())), b"xabcx", End::Silent, Outcome::Reached),
        (Expect::Token(Raw(b"abc".into())), b"ab", End::Closed, Outcome::Refused),
        (Expect::Token(Raw(Vec::new())), b"ab", End::Closed, Outcome::Refused),
        (http(0), DENIED, End::Closed, Outcome::Refused),
        (http(0), GRANTED, End::Closed, Outcome::Reached),
        (http(1), GRANTED, End::Closed, Outcome::Refused),
        (http(1), &both, End::Silent, Outcome::Refused),
        (http(0), &both, End::Silent, Outcome::Reached),
        (http(1), b"nonsense", End::Closed, Outcome::Reached),
        // What the gateway tried it had allowed, and was not had.
        (http(0), FAILED, End::Closed, Outcome::Reached),
        (Expect::Page, FAILED, End::Closed, Outcome::Refused),
        (Expect::Page, DENIED, End::Closed, Outcome::Refused),
        (Expect::Page, GRANTED, End::Silent, Outcome::Reached),
        (Expect::Page, b"nonsense", End::Closed, Outcome::Refused),
        (Expect::Page, b"", End::Silent, Outcome::Unclear),
        (Expect::Stay, b"", End::Silent, Outcome::Reached),
        (Expect::Stay, b"", End::Closed, Outcome::Refused),
        (Expect::Stay, b"", End::Reset, Outcome::Refused),
        (Expect::Stay, b"SSH-2.0", End::Closed, Outcome::Reached),
    ] {
        assert_eq!(outcome(&expect, bytes, end), wanted, "{expect:?} {} {end:?}", bytes.escape_ascii());
    }
    // Whose page it is is known no sooner than its head.
    for (bytes, settled) in [(&FAILED[..20], false), (FAILED, true), (GRANTED, true)] {
        assert_eq!(is_settled(&Expect::Page, bytes), settled, "{}", bytes.escape_ascii());
    }
}

proptest! {
    #[test]
    fn more_bytes_never_make_a_way_out_a_wall(bytes: Vec<u8>, more: Vec<u8>, allowed in 0_usize..3) {
        let expects = [Expect::Anything, Expect::Tls, Expect::Http { allowed }, Expect::Token(Raw(b"t".into()))];
        for expect in expects {
            let longer = [&bytes[..], &more[..]].concat();
            if is_settled(&expect, &bytes) {
                prop_assert_eq!(outcome(&expect, &bytes, End::Closed), outcome(&expect, &longer, End::Closed));
            }
        }
    }

    #[test]
    fn no_reply_of_a_resolver_is_a_panic(bytes: Vec<u8>, id: u16) {
        let _ = dns::decode(id, &bytes);
        let mut reply = bytes;
        if reply.len() > 2 {
            reply[..2].copy_from_slice(&id.to_be_bytes());
            reply[2] |= 0x80;
            let _ = dns::decode(id, &reply);
        }
    }

    #[test]
    fn attempts_survive_their_way_in(bytes: Vec<u8>, port: u16, allowed: usize) {
        let attempt = Attempt::Tcp(TcpAttempt {
            to: HostPlace::Name("example.com".into()),
            port,
            send: vec![Piece { bytes: Raw(bytes), after_ms: 7 }],
            expect: Expect::Http { allowed },
            fast_open: false,
            patience_ms: 9,
        });
        let text = serde_json::to_string(&attempt).unwrap();
        prop_assert_eq!(serde_json::from_str::<Attempt>(&text).unwrap(), attempt);
    }
}

/// A service on `localhost` that answers one connection with `answer` after it read `wanted` bytes.
fn service(wanted: usize, answer: &'static [u8]) -> (u16, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; wanted];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(answer).unwrap();
        bytes
    });
    (port, served)
}

fn order(port: u16, send: Vec<Piece>, expect: Expect) -> TcpAttempt {
    let to = HostPlace::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));
    TcpAttempt { to, port, send, expect, fast_open: false, patience_ms: 5000 }
}

#[test]
fn what_is_said_arrives_piece_by_piece_and_the_answer_counts() {
    for fast_open in [false, true] {
        let (port, served) = service(5, GRANTED);
        let pieces = vec![Piece::now("ab"), Piece { bytes: Raw(b"cde".into()), after_ms: 5 }];
        let order = TcpAttempt { fast_open, ..order(port, pieces, Expect::Http { allowed: 0 }) };
        let (outcome, detail) = tcp::attempt(&order);
        assert_eq!((outcome, served.join().unwrap()), (Outcome::Reached, b"abcde".to_vec()), "{detail}");
    }
    // Nobody listens at a port that was just given back.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let (outcome, detail) = tcp::attempt(&order(free, vec![Piece::now("x")], Expect::Anything));
    assert_eq!(outcome, Outcome::Refused, "{detail}");
}

#[test]
fn a_reply_with_an_address_is_read_past_its_question() {
    let question = Question { labels: vec![Raw(b"a\0b".into()), Raw(b"test".into())], record: dns::TYPE_A };
    let mut reply = dns::encode(7, &question);
    assert_eq!(&reply[12..21], b"\x03a\0b\x04test");
    reply[2] = 0x81;
    reply[7] = 1;
    reply.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc6\x12\x01\x05");
    let read = format!("{:?}", dns::decode(7, &reply).unwrap());
    assert!(read.contains("198.18.1.5"), "{read}");
    assert!(dns::decode(8, &reply).is_none(), "another message's number");
    assert!(dns::decode(7, &dns::encode(7, &question)).is_none(), "a question is no reply");
}

#[test]
fn a_place_that_is_taken_and_a_file_that_is_not_there_are_refusals() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    assert_eq!(kernel::bind(taken.local_addr().unwrap()).0, Outcome::Refused);
    assert_eq!(kernel::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).0, Outcome::Reached);
    assert_eq!(kernel::open("/nowhere/at/all".as_ref()).0, Outcome::Refused);
    assert_eq!(kernel::unix(None, None, &Raw(b"t".into())).0, Outcome::Unclear);
}

#[test]
fn each_attempt_has_its_line_and_nonsense_none() {
    let attempts: Vec<_> = (0..40)
        .map(|id| Numbered { id, attempt: Attempt::Open { path: format!("/nowhere/{id}").into() } })
        .collect();
    let mut output = Vec::new();
    serve(&serde_json::to_vec(&attempts).unwrap()[..], &mut output).unwrap();
    let lines = String::from_utf8(output).unwrap();
    let mut ids: Vec<u32> =
        lines.lines().map(|line| serde_json::from_str::<super::Tried>(line).unwrap().id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
    assert!(serve(&b"{}"[..], Vec::new()).is_err());
}
