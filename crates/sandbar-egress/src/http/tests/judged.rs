use std::sync::atomic::Ordering;

use sandbar_core::{DecisionReason, Verdict};

use super::rig::{Peer, Rig};

#[tokio::test]
async fn an_allowed_request_arrives_as_it_was_meant() {
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    client
        .write(
            b"GET /a/b?c=d%20e HTTP/1.1\r\nHost: Allowed.test:80\r\nX-Own: 1\r\nX-Hop: 2\r\nConnection: x-hop, keep-alive\r\nKeep-Alive: 5\r\nTE: gzip\r\n\r\n",
        )
        .await;
    let mut host = rig.accept().await;
    let head = host.head().await;
    assert!(head.starts_with("GET /a/b?c=d%20e HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Host: allowed.test:80\r\n") && head.contains("X-Own: 1\r\n"), "{head}");
    for gone in ["x-hop", "keep-alive", "te:", "connection"] {
        assert!(!head.to_lowercase().contains(gone), "{head}");
    }
    host.write(b"HTTP/1.1 203 Quite Fine\r\nX-Case: a\r\nConnection: x-hop\r\nX-Hop: b\r\nContent-Length: 2\r\n\r\nok").await;
    let answer = client.until("ok").await;
    assert!(
        answer.starts_with("HTTP/1.1 203 Quite Fine\r\n") && answer.contains("X-Case: a\r\n"),
        "{answer}"
    );
    assert!(!answer.to_lowercase().contains("x-hop"), "{answer}");
    assert_eq!(rig.told(), [(Verdict::Allowed, DecisionReason::Rule)]);
}

#[tokio::test]
async fn each_request_of_a_connection_is_judged() {
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    let request = b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
    client.write(request).await;
    let mut host = rig.accept().await;
    for _ in 0..2 {
        host.head().await;
        host.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        client.until("ok").await;
        client.write(request).await;
    }
    host.head().await;
    host.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    client.until("ok").await;
    assert_eq!(rig.dials(), 1, "the connection outside is kept");
    client.write(b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
    assert!(answer.contains("x-sandbar-egress: denied\r\n") && answer.contains("evil.test"), "{answer}");
    assert!(answer.contains("egress policy") && answer.ends_with("A retry will not help.\n"), "{answer}");
    assert_eq!(host.rest().await, "");
    assert_eq!(rig.told()[3], (Verdict::Denied, DecisionReason::NameMismatch));
}

#[tokio::test]
async fn a_policy_that_changed_holds_for_the_next_request() {
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    client.write(b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    let mut host = rig.accept().await;
    host.head().await;
    rig.seen().denies.store(true, Ordering::SeqCst);
    host.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    client.until("ok").await;
    client.write(b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    assert!(client.rest().await.starts_with("HTTP/1.1 403 Forbidden\r\n"));
    assert_eq!(host.rest().await, "");
}

#[tokio::test]
async fn what_names_another_host_or_asks_for_more_than_an_answer_is_refused_without_a_dial() {
    use DecisionReason::{Malformed, NameMismatch, NotHttp, TunnelNotAllowed, UpgradeNotAllowed};
    for (request, status, reason) in [
        ("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: evil.allowed.test\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: allowed.test.evil.test\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: allowed.test:\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: allowed.test:+80\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: allowed.test:080\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: allowed.test:65616\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: user@allowed.test\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: allowed.test@evil.test\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: allowed.test, evil.test\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.0\r\n\r\n", 403, NameMismatch),
        ("GET / HTTP/1.1\r\nHost: allowed.test\r\nhost: allowed.test\r\n\r\n", 403, NameMismatch),
        ("GET http://evil.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 403, NameMismatch),
        ("GET http://user@allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 403, NameMismatch),
        ("GET http://allowed.test:81/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 403, NameMismatch),
        ("GET https://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 403, NameMismatch),
        ("GET http://allowed.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", 403, NameMismatch),
        ("GET allowed.test HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 400, Malformed),
        ("GET * HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 400, Malformed),
        ("CONNECT evil.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 403, TunnelNotAllowed),
        ("CONNECT allowed.test:80 HTTP/1.1\r\nHost: allowed.test:80\r\n\r\n", 403, TunnelNotAllowed),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403, UpgradeNotAllowed),
        ("GET / HTTP/2.0\r\nHost: allowed.test\r\n\r\n", 0, NotHttp),
        ("GET /\r\n", 400, Malformed),
        ("\u{16}\u{3}\u{1}", 0, NotHttp),
        ("SSH-2.0-Client_1\r\n", 0, NotHttp),
        ("GET / HTTP/1.1\r\nHost: allowed.test\r\nExpect: the worst\r\n\r\n", 400, Malformed),
    ] {
        let mut rig = Rig::new().await;
        let answer = rig.answer_to(request.as_bytes()).await;
        let expected = if status == 0 { String::new() } else { format!("HTTP/1.1 {status} ") };
        assert!(answer.starts_with(&expected) && (status != 0 || answer.is_empty()), "{request:?}: {answer}");
        assert_eq!(rig.told(), [(Verdict::Denied, reason)], "{request:?}");
        assert_eq!(rig.dials(), 0, "{request:?}");
    }
}

#[tokio::test]
async fn the_same_host_in_full_is_the_same_host() {
    for target in ["http://allowed.test/x", "HTTP://ALLOWED.test:80/x", "http://allowed.test./x"] {
        let mut rig = Rig::new().await;
        let mut client = Peer::new(rig.client());
        client.write(format!("GET {target} HTTP/1.1\r\nHost: allowed.test.\r\n\r\n").as_bytes()).await;
        let head = rig.accept().await.head().await;
        assert!(head.starts_with("GET /x HTTP/1.1\r\n") && head.contains("Host: allowed.test\r\n"), "{head}");
    }
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    client.write(b"OPTIONS * HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    assert!(rig.accept().await.head().await.starts_with("OPTIONS * HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_no_denial() {
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    client.write(b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    drop(rig.accept().await);
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{answer}");
    assert!(answer.contains("x-sandbar-egress: failed") && !answer.contains("retry"), "{answer}");
    assert_eq!(rig.told(), [(Verdict::Failed, DecisionReason::Unreachable)]);
}

#[tokio::test]
async fn a_kept_connection_that_the_host_closed_is_made_anew() {
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    for round in 1..=3 {
        client.write(b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
        let mut host = rig.accept().await;
        host.head().await;
        host.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        client.until("ok").await;
        drop(host);
        assert_eq!(rig.dials(), round);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_ends() {
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    client.write(b"GET / HT").await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(rig.told(), [(Verdict::Denied, DecisionReason::TooSlow)]);
}
