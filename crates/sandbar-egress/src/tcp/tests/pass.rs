use sandbar_core::{DecisionKind, DecisionReason, Verdict};

use super::*;
use crate::testing::{Bench, all_but, rules};

#[tokio::test]
async fn a_name_at_another_port_is_dialled_by_name_and_passed_unread() {
    let bench = Bench::start(rules(&["db.test:5432"])).await;
    bench.outside.name("db.test", &["93.184.215.14"]);
    let host = bench.outside.host("93.184.215.14:5432").await;
    let mut inside = bench.connect_to("db.test.", 5432).await;
    inside.write_all(b"\0\0\0\x08 anything").await.unwrap();
    let mut outside = arrives(&host, b"\0\0\0\x08 anything").await;
    echoes(&mut inside, &mut outside).await;
    assert_eq!(bench.gateway.counters().open, 1);

    let allowed = bench.told.all().into_iter().find(|d| d.kind == DecisionKind::Tcp).unwrap();
    assert_eq!((allowed.verdict, allowed.reason), (Verdict::Allowed, DecisionReason::Rule));
    assert_eq!((allowed.name.as_deref(), allowed.port), (Some("db.test"), Some(5432)));
    assert_eq!(allowed.address.unwrap().to_string(), "93.184.215.14");
    assert_eq!(allowed.rule.as_deref(), Some("db.test:5432"));
    drop(inside);
    assert!(all(&mut outside).await.is_empty());
    drop(outside);
    let closed = bench.decision(DecisionReason::Finished).await;
    assert_eq!((closed.verdict, closed.bytes_out, closed.bytes_in), (Verdict::Closed, Some(18), Some(5)));
    bench.quiet().await;
    let counters = bench.gateway.counters();
    assert_eq!((counters.allowed, counters.bytes_out, counters.bytes_in), (1, 18, 5));
}

#[tokio::test]
async fn an_end_in_one_direction_leaves_the_other() {
    let bench = Bench::start(all_but(&[])).await;
    let host = bench.outside.host("93.184.215.14:9000").await;
    let mut inside = bench.connect(PUBLIC, 9000).await;
    inside.write_all(b"question").await.unwrap();
    inside.shutdown().await.unwrap();
    let (mut outside, _) = host.accept().await.unwrap();
    assert_eq!(all(&mut outside).await, b"question");
    outside.write_all(b"answer").await.unwrap();
    drop(outside);
    assert_eq!(all(&mut inside).await, b"answer");
    bench.quiet().await;
}

#[tokio::test]
async fn a_connection_that_breaks_at_one_end_breaks_at_the_other() {
    let bench = Bench::start(all_but(&[])).await;
    let host = bench.outside.host("93.184.215.14:9000").await;
    for breaks_inside in [true, false] {
        let mut inside = bench.connect(PUBLIC, 9000).await;
        inside.write_all(b"hello").await.unwrap();
        let outside = arrives(&host, b"hello").await;
        let (broken, mut other) = if breaks_inside { (inside, outside) } else { (outside, inside) };
        broken.set_zero_linger().unwrap();
        drop(broken);
        assert!(is_reset(&mut other).await, "breaks inside: {breaks_inside}");
    }
}

#[tokio::test]
async fn much_passes_both_ways_whole() {
    const MUCH: usize = 8 << 20;
    let bench = Bench::start(all_but(&[])).await;
    let host = bench.outside.host("93.184.215.14:9000").await;
    let inside = bench.connect(PUBLIC, 9000).await;
    let (outside, _) = host.accept().await.unwrap();
    let bytes: Vec<u8> = (0..MUCH).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect();
    let both = [inside, outside].map(|stream| {
        let bytes = bytes.clone();
        tokio::spawn(async move {
            let (mut read, mut write) = stream.into_split();
            let sent = tokio::spawn(async move {
                write.write_all(&bytes).await.unwrap();
                write.shutdown().await.unwrap();
                write
            });
            let mut got = Vec::new();
            read.read_to_end(&mut got).await.unwrap();
            drop(sent.await.unwrap());
            got
        })
    });
    for got in both {
        assert!(timeout(PATIENCE, got).await.unwrap().unwrap() == bytes);
    }
    bench.quiet().await;
    let counters = bench.gateway.counters();
    assert_eq!((counters.bytes_out, counters.bytes_in), (MUCH as u64, MUCH as u64));
}

#[tokio::test]
async fn a_range_is_dialled_as_it_is_asked_for() {
    let bench = Bench::start(rules(&["10.7.0.0/16:443", "93.184.215.0/24:80"])).await;
    for (address, port) in [(Ipv4Addr::new(10, 7, 1, 1), 443), (PUBLIC, 80)] {
        let host = bench.outside.host(&format!("{address}:{port}")).await;
        let mut inside = bench.connect(address, port).await;
        inside.write_all(b"not TLS, not HTTP").await.unwrap();
        arrives(&host, b"not TLS, not HTTP").await;
    }
    assert!(bench.outside.asked().is_empty());
}

#[tokio::test]
async fn the_control_name_answers_under_every_policy_and_without_an_outside() {
    for policy in [rules(&[]), all_but(&["0.0.0.0/0"]), rules(&["*.test"])] {
        let bench = Bench::start(policy).await;
        let mut inside = bench.connect_to("control.sandbar.internal.", 80).await;
        inside.write_all(b"GET /any HTTP/1.1\r\nhost: control.sandbar.internal\r\n\r\n").await.unwrap();
        let answer = String::from_utf8(all(&mut inside).await).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nsandbar\n"),
            "{answer}"
        );
        let mut other = bench.connect_to("control.sandbar.internal.", 8080).await;
        assert!(is_reset(&mut other).await);
        assert!(bench.outside.asked().is_empty() && bench.outside.dialled().is_empty());
    }
}
