use sandbar_core::{DecisionReason, Verdict};

use super::rig::{Peer, Rig};

const OPEN: &str = "GET /ws HTTP/1.1\r\nHost: allowed.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const OPENED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

#[tokio::test]
async fn a_websocket_passes_both_ways() {
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    // The first frame may come with the request.
    client.write(format!("{OPEN}\u{1}first").as_bytes()).await;
    let mut host = rig.accept().await;
    let head = host.head().await.to_lowercase();
    assert!(head.contains("upgrade: websocket\r\n") && head.contains("connection: upgrade\r\n"), "{head}");
    host.write(format!("{OPENED}hello").as_bytes()).await;
    let head = client.head().await;
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.to_lowercase().contains("upgrade: websocket"),
        "{head}"
    );
    client.until("hello").await;
    host.until("\u{1}first").await;
    for round in 0..50 {
        client.write(format!("ping {round}.").as_bytes()).await;
        host.until(&format!("ping {round}.")).await;
        host.write(format!("pong {round}.").as_bytes()).await;
        client.until(&format!("pong {round}.")).await;
    }
    drop(client);
    assert_eq!(host.rest().await, "");
    assert_eq!(rig.told(), [(Verdict::Allowed, DecisionReason::Rule)]);
}

#[tokio::test]
async fn no_other_protocol_and_no_half_of_a_websocket_goes_out() {
    use DecisionReason::{Malformed, UpgradeNotAllowed};
    for (from, to, reason) in [
        ("Upgrade: websocket", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", UpgradeNotAllowed),
        ("Upgrade: websocket", "Upgrade: websocket, h2c", UpgradeNotAllowed),
        ("Upgrade: websocket", "Upgrade: websocket\r\nUpgrade: h2c", UpgradeNotAllowed),
        ("Upgrade: websocket", "Upgrade: TLS/1.2", UpgradeNotAllowed),
        ("GET", "POST", Malformed),
        ("HTTP/1.1", "HTTP/1.0", Malformed),
        ("keep-alive, Upgrade", "keep-alive", Malformed),
        ("Version: 13", "Version: 7", Malformed),
        ("Sec-WebSocket-Key", "X-Key", Malformed),
        ("dGhlIHNhbXBsZSBub25jZQ==", "short", Malformed),
        ("Sec-WebSocket-Version", "Content-Length: 1\r\nSec-WebSocket-Version", Malformed),
    ] {
        let mut rig = Rig::new().await;
        let answer = rig.answer_to(OPEN.replacen(from, to, 1).as_bytes()).await;
        let status = if reason == Malformed { "400" } else { "403" };
        assert!(answer.split(' ').nth(1) == Some(status), "{to}: {answer}");
        assert_eq!(rig.told(), [(Verdict::Denied, reason)], "{to}");
        assert_eq!(rig.dials(), 0);
    }
}

#[tokio::test]
async fn a_host_that_does_not_understand_the_upgrade_opens_no_tunnel() {
    let evil = "GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    let wrong = OPENED.replace("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    let other = OPENED.replace("Upgrade: websocket", "Upgrade: h2c");
    for answer in [wrong.as_str(), &other, "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n"] {
        let mut rig = Rig::new().await;
        let mut client = Peer::new(rig.client());
        client.write(format!("{OPEN}{evil}").as_bytes()).await;
        let mut host = rig.accept().await;
        host.head().await;
        host.write(answer.as_bytes()).await;
        let got = client.rest().await;
        assert!(!got.starts_with("HTTP/1.1 101"), "{got}");
        assert_eq!(host.rest().await, "", "{answer:?}");
    }
    // Nor does one that answers with an upgrade nobody asked for.
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    client.write(format!("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n{evil}").as_bytes()).await;
    let mut host = rig.accept().await;
    host.head().await;
    host.write(OPENED.as_bytes()).await;
    assert!(client.rest().await.starts_with("HTTP/1.1 502 "));
    assert_eq!(host.rest().await, "");
}
