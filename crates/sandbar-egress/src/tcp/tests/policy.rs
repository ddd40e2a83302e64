use sandbar_core::{DecisionReason, EgressPolicy, HeaderInjection, Otherwise, Verdict};

use super::*;
use crate::testing::{Bench, all_but, rules};

#[tokio::test]
async fn a_change_cuts_what_it_no_longer_allows_before_it_returns() {
    let bench = Bench::start(rules(&["stays.test:22", "goes.test:22"])).await;
    let host = bench.outside.host("93.184.215.14:22").await;
    let mut open = Vec::new();
    for text in ["stays.test", "goes.test"] {
        bench.outside.name(text, &["93.184.215.14"]);
        let mut inside = bench.connect_to(&format!("{text}."), 22).await;
        inside.write_all(b"hello").await.unwrap();
        let outside = arrives(&host, b"hello").await;
        open.push((inside, outside));
    }
    bench.gateway.set_policy(&rules(&["stays.test:22"])).await.unwrap();
    assert_eq!(bench.gateway.counters().open, 1);
    let told = bench.told.all();
    let closed = told.iter().find(|d| d.verdict == Verdict::Closed).unwrap();
    assert_eq!((closed.reason, closed.name.as_deref()), (DecisionReason::PolicyChanged, Some("goes.test")));
    let (mut inside, mut outside) = open.pop().unwrap();
    assert!(is_reset(&mut inside).await);
    assert!(all(&mut outside).await.is_empty());
    let (mut inside, mut outside) = open.pop().unwrap();
    echoes(&mut inside, &mut outside).await;

    let goes = bench.gateway.assignments()[1].address;
    let mut again = bench.connect(goes, 22).await;
    assert!(is_reset(&mut again).await, "a name that was allowed keeps its address and is judged anew");
    assert_eq!(bench.lookup("goes.test."), None);
    bench.gateway.set_policy(&EgressPolicy::DenyAll).await.unwrap();
    assert_eq!(bench.gateway.counters().open, 0);
    assert!(is_reset(&mut inside).await);
    assert_eq!(bench.gateway.policy(), EgressPolicy::DenyAll);
}

#[tokio::test]
async fn a_change_is_about_the_address_too_that_a_name_led_to() {
    let bench = Bench::start(all_but(&[])).await;
    bench.outside.name("a.test", &["93.184.215.14"]);
    let host = bench.outside.host("93.184.215.14:22").await;
    let mut inside = bench.connect_to("a.test.", 22).await;
    inside.write_all(b"hello").await.unwrap();
    let _outside = arrives(&host, b"hello").await;
    bench.gateway.set_policy(&all_but(&["93.184.215.0/24"])).await.unwrap();
    assert!(is_reset(&mut inside).await);
}

#[tokio::test]
async fn a_connection_that_waits_for_its_start_is_cut_too() {
    let bench = Bench::start(rules(&["a.test"])).await;
    let mut inside = bench.connect_to("a.test.", 443).await;
    while bench.gateway.counters().open == 0 {
        tokio::task::yield_now().await;
    }
    bench.gateway.set_policy(&EgressPolicy::DenyAll).await.unwrap();
    assert_eq!(bench.gateway.counters().open, 0);
    assert!(is_reset(&mut inside).await);
}

#[tokio::test]
async fn what_can_not_be_enforced_is_refused_and_the_policy_stays() {
    let bench = Bench::start(rules(&["a.test"])).await;
    let rule = |text: &str| text.parse::<sandbar_core::EgressRule>().unwrap();
    let header = HeaderInjection::new("x-key", "s3cret").unwrap();
    let injecting =
        EgressPolicy::rules(vec![rule("b.test:443").with_header(header)], Vec::new(), Otherwise::Deny);
    let error = bench.gateway.set_policy(&injecting).await.unwrap_err();
    assert!(error.to_string().contains("b.test:443") && !format!("{error:?}").contains("s3cret"), "{error}");
    let error = bench.gateway.set_policy(&rules(&["a.test:53/udp"])).await.unwrap_err();
    assert!(error.to_string().contains("a.test:53/udp"), "{error}");
    assert_eq!(bench.gateway.policy(), rules(&["a.test"]));
}

#[tokio::test]
async fn without_its_handle_a_gateway_is_gone() {
    let bench = Bench::start(all_but(&[])).await;
    let host = bench.outside.host("93.184.215.14:9000").await;
    let mut inside = bench.connect(PUBLIC, 9000).await;
    let (mut outside, _) = host.accept().await.unwrap();
    drop(bench);
    assert!(all(&mut outside).await.is_empty());
    // An end or a reset: in any case no way out.
    drop(inside.write_all(b"anybody?").await);
    assert!(matches!(timeout(PATIENCE, inside.read(&mut [0; 8])).await.unwrap(), Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_change_is_told_by_whoever_knows_that_it_stays() {
    let bench = Bench::start(rules(&["a.test"])).await;
    bench.gateway.set_policy(&EgressPolicy::DenyAll).await.unwrap();
    assert_eq!(bench.told.all(), []);
    bench.gateway.tell_policy();
    let told = bench.decision(DecisionReason::PolicySet).await;
    assert_eq!(told.detail.as_deref(), Some(EgressPolicy::DenyAll.kind()));
}

#[tokio::test]
async fn an_address_is_explained_by_the_name_that_it_stands_for() {
    use sandbar_core::{Destination, Protocol, Verdict};
    let bench = Bench::start(rules(&["a.test:443"])).await;
    let a = bench.lookup("a.test.").unwrap();
    let explain = |address: Ipv4Addr, port| {
        bench.gateway.explain(&Destination::Address(address.into()), port, Protocol::Tcp)
    };
    let allowed = explain(a, 443);
    assert_eq!((allowed.verdict, allowed.rule.as_deref()), (Verdict::Allowed, Some("a.test:443")));
    assert!(allowed.sentence.starts_with(&format!("`{a}` stands for `a.test`")), "{}", allowed.sentence);
    assert_eq!(explain(a, 22).reason, DecisionReason::PortNotAllowed);
    let none = explain(Ipv4Addr::new(198, 19, 0, 1), 443);
    assert_eq!((none.verdict, none.reason), (Verdict::Denied, DecisionReason::NotAllowed));
    assert!(none.sentence.contains("no name") && none.sentence.contains("retry"), "{}", none.sentence);
    let gateway = explain(crate::control::GATEWAY_ADDRESS, 53);
    assert_eq!((gateway.verdict, gateway.reason), (Verdict::Denied, DecisionReason::GatewayItself));
}
