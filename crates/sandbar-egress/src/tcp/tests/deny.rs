use sandbar_core::{DecisionKind, DecisionReason, EgressPolicy, Verdict};

use super::*;
use crate::testing::{Bench, all_but, rules};

#[tokio::test]
async fn what_no_rule_allows_is_reset_at_once_and_nobody_is_dialled() {
    let bench = Bench::start(rules(&["a.test", "10.7.0.0/16"])).await;
    let a = bench.lookup("a.test.").unwrap();
    for (address, port, reason) in [
        (PUBLIC, 443, DecisionReason::NotAllowed),
        (Ipv4Addr::new(10, 8, 0, 1), 443, DecisionReason::ForbiddenAddress),
        (Ipv4Addr::new(10, 7, 0, 1), 22, DecisionReason::PortNotAllowed),
        (Ipv4Addr::new(169, 254, 169, 254), 80, DecisionReason::ForbiddenAddress),
        (Ipv4Addr::LOCALHOST, 80, DecisionReason::ForbiddenAddress),
        (Ipv4Addr::UNSPECIFIED, 80, DecisionReason::ForbiddenAddress),
        (Ipv4Addr::new(198, 18, 200, 1), 443, DecisionReason::NotAllowed),
        (Ipv4Addr::new(198, 18, 0, 1), 15_001, DecisionReason::GatewayItself),
        (Ipv4Addr::new(198, 18, 0, 3), 80, DecisionReason::NotAllowed),
        (a, 22, DecisionReason::PortNotAllowed),
    ] {
        let mut inside = bench.connect(address, port).await;
        assert!(is_reset(&mut inside).await, "{address}:{port}");
        let told = bench.told.all().into_iter().rfind(|d| d.kind == DecisionKind::Tcp).unwrap();
        assert_eq!((told.verdict, told.reason), (Verdict::Denied, reason), "{address}:{port}");
    }
    bench.quiet().await;
    assert!(bench.outside.asked().is_empty() && bench.outside.dialled().is_empty());
    assert_eq!((bench.gateway.counters().denied, bench.gateway.counters().allowed), (10, 0));
}

#[tokio::test]
async fn under_allow_all_private_and_own_addresses_stay_closed() {
    let bench = Bench::start(EgressPolicy::AllowAll).await;
    bench.outside.own("93.184.215.77");
    for text in
        ["10.0.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "100.100.100.200", "93.184.215.77"]
    {
        let mut inside = bench.connect(text.parse().unwrap(), 80).await;
        assert!(is_reset(&mut inside).await, "{text}");
    }
    assert!(bench.outside.dialled().is_empty());
}

#[tokio::test]
async fn a_name_that_leads_to_what_is_forbidden_is_refused_at_each_connection() {
    let bench = Bench::start(rules(&["a.test:22"])).await;
    bench.outside.own("93.184.215.77");
    let address = bench.lookup("a.test.").unwrap();
    for leads_to in [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "198.18.1.0",
        "::1",
        "::ffff:93.184.215.14",
        "64:ff9b::5db8:d70e",
        "fd00::1",
        "93.184.215.77",
    ] {
        bench.outside.name("a.test", &[leads_to]);
        let mut inside = bench.connect(address, 22).await;
        assert!(is_reset(&mut inside).await, "{leads_to}");
        let told = bench.told.all().into_iter().rfind(|d| d.kind == DecisionKind::Tcp).unwrap();
        assert_eq!((told.verdict, told.reason), (Verdict::Denied, DecisionReason::ForbiddenAddress));
        assert_eq!(told.address.unwrap().to_string(), leads_to);
    }
    assert!(bench.outside.dialled().is_empty());

    // Public now, private with the next answer: each connection is judged by its own.
    let host = bench.outside.host("93.184.215.14:22").await;
    bench.outside.name("a.test", &["10.0.0.1", "93.184.215.14"]);
    let mut inside = bench.connect(address, 22).await;
    inside.write_all(b"hello").await.unwrap();
    let _outside = arrives(&host, b"hello").await;
    bench.outside.name("a.test", &["10.0.0.1"]);
    let mut again = bench.connect(address, 22).await;
    assert!(is_reset(&mut again).await);
    assert_eq!(bench.outside.dialled(), ["93.184.215.14:22"]);
}

#[tokio::test]
async fn a_denied_range_counts_for_names_that_only_the_default_allows() {
    let mut policy = all_but(&["93.184.0.0/16"]);
    if let EgressPolicy::Rules(rules) = &mut policy {
        rules.allow.push("rule.test:22".parse().unwrap());
    }
    let bench = Bench::start(policy).await;
    let host = bench.outside.host("93.184.215.14:22").await;
    for text in ["rule.test", "other.test"] {
        bench.outside.name(text, &["93.184.215.14"]);
    }
    let mut other = bench.connect_to("other.test.", 22).await;
    assert!(is_reset(&mut other).await);
    let told = bench.decision(DecisionReason::DenyRule).await;
    assert_eq!((told.verdict, told.rule.as_deref()), (Verdict::Denied, Some("93.184.0.0/16")));
    assert_eq!(told.address, Some(PUBLIC.into()));
    bench.outside.name("other.test", &["10.0.0.1"]);
    let mut private = bench.connect_to("other.test.", 22).await;
    assert!(is_reset(&mut private).await);
    assert_eq!(bench.decision(DecisionReason::ForbiddenAddress).await.rule, None);
    let mut rule = bench.connect_to("rule.test.", 22).await;
    rule.write_all(b"hello").await.unwrap();
    arrives(&host, b"hello").await;
}

#[tokio::test]
async fn what_does_not_come_off_is_no_denial() {
    let bench = Bench::start(rules(&["gone.test:22", "shut.test:22"])).await;
    bench.outside.name("shut.test", &["93.184.215.15", "93.184.215.16"]);
    let mut gone = bench.connect_to("gone.test.", 22).await;
    assert!(is_reset(&mut gone).await);
    let told = bench.decision(DecisionReason::Unresolved).await;
    assert_eq!(told.verdict, Verdict::Failed);
    let mut shut = bench.connect_to("shut.test.", 22).await;
    assert!(is_reset(&mut shut).await);
    let told = bench.decision(DecisionReason::Unreachable).await;
    assert_eq!(told.address.unwrap().to_string(), "93.184.215.16");
    assert_eq!(bench.outside.dialled(), ["93.184.215.15:22", "93.184.215.16:22"]);
    assert_eq!(bench.gateway.counters().failed, 2);
}
