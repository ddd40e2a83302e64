use sandbar_core::{DecisionKind, DecisionReason, Verdict};

use super::*;
use crate::testing::{Bench, all_but, rules};

/// A client's hello that names `host`, as TLS 1.2 frames it, with nothing that can be left out.
fn hello(host: &str) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes).unwrap().to_be_bytes();
    let name = [&[0][..], &length(host.len()), host.as_bytes()].concat();
    let list = [&length(name.len())[..], &name].concat();
    let extension = [&[0, 0][..], &length(list.len()), &list].concat();
    let mut body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
    body.extend([&length(extension.len())[..], &extension].concat());
    let message = [&[1, 0][..], &length(body.len()), &body].concat();
    [&[22, 3, 1][..], &length(message.len()), &message].concat()
}

#[tokio::test]
async fn tls_that_names_the_host_passes_with_its_hello() {
    let bench = Bench::start(rules(&["a.test"])).await;
    bench.outside.name("a.test", &["93.184.215.14"]);
    let host = bench.outside.host("93.184.215.14:443").await;
    let mut inside = bench.connect_to("a.test.", 443).await;
    let hello = hello("a.test");
    let (first, rest) = hello.split_at(7);
    inside.write_all(first).await.unwrap();
    inside.write_all(rest).await.unwrap();
    let mut outside = arrives(&host, &hello).await;
    echoes(&mut inside, &mut outside).await;
}

#[tokio::test]
async fn tls_that_names_another_host_gets_an_alert_and_nobody_is_dialled() {
    for (sent, reason) in [
        (hello("b.test"), DecisionReason::NameMismatch),
        (hello(""), DecisionReason::Malformed),
        (hello("93.184.215.14"), DecisionReason::NameMismatch),
        (b"SSH-2.0-anything\r\n".to_vec(), DecisionReason::NotTls),
    ] {
        let bench = Bench::start(rules(&["a.test", "b.test"])).await;
        bench.outside.name("a.test", &["93.184.215.14"]);
        let mut inside = bench.connect_to("a.test.", 443).await;
        inside.write_all(&sent).await.unwrap();
        let alert = all(&mut inside).await;
        assert_eq!((alert.len(), &alert[..3], alert[5]), (7, &[21, 3, 3][..], 2), "{alert:?}");
        let told = bench.told.all().into_iter().rfind(|d| d.kind == DecisionKind::Tcp).unwrap();
        assert_eq!((told.verdict, told.reason), (Verdict::Denied, reason));
        assert!(bench.outside.asked().is_empty() && bench.outside.dialled().is_empty());
    }
}

#[tokio::test]
async fn http_passes_by_name_and_is_refused_in_words() {
    let bench = Bench::start(rules(&["a.test", "shut.test:443"])).await;
    bench.outside.name("a.test", &["93.184.215.14"]);
    let host = bench.outside.host("93.184.215.14:80").await;
    let mut inside = bench.connect_to("a.test.", 80).await;
    inside.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    let (mut outside, _) = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    let mut request = vec![0; 4096];
    let length = outside.read(&mut request).await.unwrap();
    assert!(request[..length].starts_with(b"GET / HTTP/1.1\r\n"));
    outside.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4096];
    let length = timeout(PATIENCE, inside.read(&mut answer)).await.unwrap().unwrap();
    assert!(answer[..length].starts_with(b"HTTP/1.1 204"));

    inside.write_all(b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n").await.unwrap();
    let refused = String::from_utf8(all(&mut inside).await).unwrap();
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("A retry will not help"), "{refused}");
    assert_eq!(bench.decision(DecisionReason::NameMismatch).await.kind, DecisionKind::Http);

    let mut shut = bench.connect_to("shut.test.", 80).await;
    shut.write_all(b"GET / HTTP/1.1\r\nHost: shut.test\r\n\r\n").await.unwrap();
    let refused = String::from_utf8(all(&mut shut).await).unwrap();
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("egress policy"), "{refused}");
    assert_eq!(bench.decision(DecisionReason::PortNotAllowed).await.name.as_deref(), Some("shut.test"));
}

#[tokio::test]
async fn a_denied_port_443_gets_an_alert() {
    let bench = Bench::start(rules(&["a.test:80"])).await;
    let mut inside = bench.connect_to("a.test.", 443).await;
    inside.write_all(&hello("a.test")).await.unwrap();
    assert_eq!(all(&mut inside).await.len(), 7);
    assert_eq!(bench.decision(DecisionReason::PortNotAllowed).await.port, Some(443));
}

#[tokio::test]
async fn what_only_the_default_allows_is_not_read() {
    let bench = Bench::start(all_but(&[])).await;
    bench.outside.name("a.test", &["93.184.215.14"]);
    for port in [80, 443] {
        let host = bench.outside.host(&format!("93.184.215.14:{port}")).await;
        let mut inside = bench.connect_to("a.test.", port).await;
        inside.write_all(b"whatever").await.unwrap();
        arrives(&host, b"whatever").await;
    }
}

#[tokio::test]
async fn tls_to_a_host_that_can_not_be_reached_gets_an_alert() {
    let bench = Bench::start(rules(&["gone.test", "shut.test"])).await;
    bench.outside.name("shut.test", &["93.184.215.15"]);
    for (host, reason) in
        [("gone.test", DecisionReason::Unresolved), ("shut.test", DecisionReason::Unreachable)]
    {
        let mut inside = bench.connect_to(&format!("{host}."), 443).await;
        inside.write_all(&hello(host)).await.unwrap();
        assert_eq!(all(&mut inside).await, [21, 3, 3, 0, 2, 2, 80], "{host}");
        assert_eq!(bench.decision(reason).await.verdict, Verdict::Failed);
    }
}
