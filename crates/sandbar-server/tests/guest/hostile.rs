//! Input that nobody of good will sends: a proper error or a closed connection, and a server that goes on.

use http::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{PATIENCE, Rig};

/// What a stream of the guest's is sent as.
const STREAM: &str = "application/connect+json";

/// Sends bytes and reads until the end, or until nothing more can come: at most what a head and a small body have.
async fn raw(rig: &Rig, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(rig.address).await.expect("the server listens");
    // It may close before it has all.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let reading = async {
        let mut piece = [0; 4096];
        while let Ok(got) = stream.read(&mut piece).await {
            answer.extend_from_slice(&piece[..got]);
            if got == 0 || answer.len() > 65_536 || answer.ends_with(b"}") {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("an answer or an end");
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_are_bounded() {
    let rig = Rig::memory().await;
    let long = format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx-long: {}\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x-a: b\r\n".repeat(5000));
    let target = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(1 << 20));
    for head in [&long, &many, &target] {
        let status = status(&raw(&rig, head.as_bytes()).await);
        assert!(matches!(status, 0 | 400 | 414 | 431), "{status}");
    }
    for junk in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET\r\n\r\n",
        b"\0\0\0\0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let answer = raw(&rig, &[junk, b"\r\n\r\n"].concat()).await;
        assert!(matches!(status(&answer), 0 | 400 | 505), "{answer}");
    }
    assert_eq!(rig.ask(Method::GET, "/health", &[], "").await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_are_well_formed_or_refused() {
    let rig = Rig::memory().await;
    let id = |id, port| [("e2b-sandbox-id", id), ("e2b-sandbox-port", port)];
    for (given, port) in [
        ("../../etc", "80"),
        ("a%2fb", "80"),
        ("a/b", "80"),
        ("A", "80"),
        ("s", "0"),
        ("s", "70000"),
        ("s", "80 80"),
        ("-", "80"),
    ] {
        let reply = rig.ask(Method::GET, "/", &id(given, port), "").await;
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (StatusCode::BAD_REQUEST, &json!(400)),
            "{given} {port}"
        );
    }
    let long = "a".repeat(5000);
    assert_eq!(rig.ask(Method::GET, "/", &id(&long, "80"), "").await.status, StatusCode::BAD_REQUEST);
    for one in [&id("s", "80")[..1], &id("s", "80")[1..]] {
        assert_eq!(rig.ask(Method::GET, "/", one, "").await.status, StatusCode::BAD_REQUEST);
    }
    // Under a name that is not the server's, headers are nothing (DNS rebinding), and neither is anything else.
    for name in ["evil.test", "sandbox.evil.test"] {
        let foreign = [&id("s", "80")[..], &[("host", name), ("x-api-key", &rig.key)]].concat();
        for path in ["/nothing", "/health", "/metrics", "/v2/sandboxes"] {
            let reply = rig.ask(Method::GET, path, &foreign, "").await;
            assert_eq!(
                (reply.status, &reply.json()["code"]),
                (StatusCode::FORBIDDEN, &json!(403)),
                "{name} {path}"
            );
        }
    }
    // Nor is it driven by a page of somebody else's, or told to whom a proxy asks for.
    let page = [("origin", "https://evil.test"), ("x-api-key", rig.key.as_str())];
    assert_eq!(rig.ask(Method::GET, "/v2/sandboxes", &page, "").await.status, StatusCode::FORBIDDEN);
    let proxied = [("x-forwarded-for", "203.0.113.7")];
    assert_eq!(rig.ask(Method::GET, "/metrics", &proxied, "").await.status, StatusCode::FORBIDDEN);
    assert_eq!(rig.ask(Method::GET, "/metrics", &[], "").await.status, StatusCode::OK);
    for path in
        ["/sandboxes/..%2f..%2fetc", "/sandboxes/a-b-c", "/v2/sandboxes/%00/connect", "/sandboxes/%ff"]
    {
        let reply = rig.control(Method::GET, path, serde_json::Value::Null).await;
        assert!(reply.status.is_client_error(), "{path}: {}", reply.status);
    }
    let tunnel = raw(&rig, b"CONNECT example.com:443 HTTP/1.1\r\nhost: localhost\r\ne2b-sandbox-id: s\r\ne2b-sandbox-port: 80\r\n\r\n").await;
    assert!((400..500).contains(&status(&tunnel)), "{tunnel}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_lie_harm_nobody() {
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let head = |path: &str, kind: &str, length: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ne2b-sandbox-id: {}\r\ne2b-sandbox-port: 49983\r\n\
             x-access-token: {}\r\ncontent-type: {kind}\r\n{length}\r\n",
            sandbox.id, sandbox.token
        )
    };
    // Ten gigabytes that are announced and do not come, in a frame that announces four.
    let huge = head("/process.Process/Start", STREAM, "content-length: 10737418240\r\n");
    let frame = [huge.as_bytes(), b"\x00\xff\xff\xff\xff{\"process\":"].concat();
    let answer = raw(&rig, &frame).await;
    assert!(!answer.contains("\"start\""), "{answer}");
    // Frames that lie about their length, are compressed, or hold no JSON.
    for body in
        [&b"\x00\x00\x00\x00\x05{}"[..], b"\x01\x00\x00\x00\x02{}", b"\x00\x00\x00\x00\x02{{", b"\x00", b""]
    {
        let request = [
            head("/process.Process/Start", STREAM, &format!("content-length: {}\r\n", body.len())).as_bytes(),
            body,
        ]
        .concat();
        let answer = raw(&rig, &request).await;
        assert!(status(&answer) != 0 && status(&answer) < 500 && !answer.contains("\"start\""), "{answer}");
    }
    for body in ["{", "[]", "\u{0}", "{\"process\":7}"] {
        let headers = [&sandbox.guest()[..], &[("content-type", "application/json")]].concat();
        let reply = rig.ask(Method::POST, "/process.Process/SendSignal", &headers, body.to_owned()).await;
        assert!(reply.status.is_client_error(), "{body}: {}", reply.status);
    }
    // Two lengths: whoever is behind sees one request all the same.
    let two = head(
        "/process.Process/List",
        "application/json",
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
    );
    let answer = raw(&rig, format!("{two}2\r\n{{}}\r\n0\r\n\r\n").as_bytes()).await;
    assert!(matches!(status(&answer), 0 | 200 | 400) && answer.matches("HTTP/1.1").count() <= 1, "{answer}");
    // The control plane's.
    let control = format!(
        "POST /v2/sandboxes HTTP/1.1\r\nhost: localhost\r\nx-api-key: {}\r\ncontent-type: application/json\r\ncontent-length: 10737418240\r\n\r\n",
        rig.key
    );
    let answer = raw(&rig, &[control.as_bytes(), &vec![b' '; 5 << 20]].concat()).await;
    assert!(matches!(status(&answer), 0 | 400 | 413), "{answer}");
    let health = rig.ask(Method::GET, "/health", &sandbox.guest(), "").await;
    assert_eq!(health.status, StatusCode::NO_CONTENT);
}
