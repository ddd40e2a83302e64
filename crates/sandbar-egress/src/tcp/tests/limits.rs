use std::time::Duration;

use sandbar_core::{DecisionReason, Verdict};

use super::*;
use crate::limits::Limits;
use crate::testing::{Bench, all_but, rules};

#[tokio::test]
async fn there_are_only_so_many_connections_at_once() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let bench = Bench::limited(all_but(&[]), limits).await;
    let host = bench.outside.host("93.184.215.14:9000").await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut inside = bench.connect(PUBLIC, 9000).await;
        inside.write_all(b"hello").await.unwrap();
        let outside = arrives(&host, b"hello").await;
        open.push((inside, outside));
    }
    let mut third = bench.connect(PUBLIC, 9000).await;
    assert!(is_reset(&mut third).await);
    assert_eq!(bench.decision(DecisionReason::Limit).await.detail.as_deref(), Some("open connections"));
    open.clear();
    bench.quiet().await;
    let mut fourth = bench.connect(PUBLIC, 9000).await;
    fourth.write_all(b"hello").await.unwrap();
    arrives(&host, b"hello").await;
}

#[tokio::test]
async fn there_are_only_so_many_new_connections_at_a_time() {
    let limits = Limits { connection_burst: 3, connections_per_second: 1, ..Limits::default() };
    let bench = Bench::limited(rules(&[]), limits).await;
    for _ in 0..5 {
        assert!(is_reset(&mut bench.connect(PUBLIC, 80).await).await);
    }
    let told = bench.decision(DecisionReason::Limit).await;
    assert_eq!(told.detail.as_deref(), Some("connections per second"));
}

#[tokio::test]
async fn no_more_bytes_leave_than_may() {
    let limits = Limits { bytes_out: Some(10_000), ..Limits::default() };
    let bench = Bench::limited(all_but(&[]), limits).await;
    let host = bench.outside.host("93.184.215.14:9000").await;
    let mut inside = bench.connect(PUBLIC, 9000).await;
    let sent = tokio::spawn(async move {
        let written = inside.write_all(&vec![7; 4 << 20]).await;
        let read = inside.read(&mut [0; 8]).await;
        written.is_err() || read.is_err()
    });
    let (mut outside, _) = host.accept().await.unwrap();
    let mut arrived = Vec::new();
    // However it ends there: what arrived counts.
    drop(timeout(PATIENCE, outside.read_to_end(&mut arrived)).await.unwrap());
    assert!(arrived.len() <= 10_000, "{}", arrived.len());
    assert!(timeout(PATIENCE, sent).await.unwrap().unwrap(), "the program is told by a reset");
    assert_eq!(bench.decision(DecisionReason::UsedUp).await.verdict, Verdict::Closed);
    assert!(!DecisionReason::UsedUp.may_retry());
}

#[tokio::test]
async fn a_start_that_does_not_come_is_not_waited_for() {
    let limits = Limits { handshake: Duration::from_millis(50), ..Limits::default() };
    let bench = Bench::limited(rules(&["a.test"]), limits).await;
    let mut inside = bench.connect_to("a.test.", 443).await;
    inside.write_all(&[22, 3]).await.unwrap();
    assert!(is_reset(&mut inside).await);
    assert_eq!(bench.decision(DecisionReason::TooSlow).await.verdict, Verdict::Denied);
    assert!(bench.outside.asked().is_empty());
}

#[tokio::test]
async fn a_connection_on_which_nothing_passes_ends() {
    let limits = Limits { tcp_idle: Duration::from_millis(50), ..Limits::default() };
    let bench = Bench::limited(all_but(&[]), limits).await;
    let host = bench.outside.host("93.184.215.14:9000").await;
    let mut inside = bench.connect(PUBLIC, 9000).await;
    let (_outside, _) = host.accept().await.unwrap();
    assert!(all(&mut inside).await.is_empty());
    assert_eq!(bench.decision(DecisionReason::Finished).await.detail.as_deref(), Some("idle"));
}

#[tokio::test]
async fn what_a_limit_refuses_is_told_by_its_name() {
    let limits = Limits { connection_burst: 1, connections_per_second: 1, ..Limits::default() };
    let bench = Bench::limited(rules(&["a.test:443"]), limits).await;
    for _ in 0..3 {
        assert!(is_reset(&mut bench.connect_to("a.test.", 22).await).await);
    }
    let told = bench.decision(DecisionReason::Limit).await;
    assert_eq!((told.name.as_deref(), told.address), (Some("a.test"), None));
}
