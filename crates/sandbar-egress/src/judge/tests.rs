use proptest::prelude::*;
use sandbar_core::{
    Cidr, DecisionReason, Destination, EgressPolicy, HeaderInjection, Hostname, Otherwise, Protocol, Verdict,
};

use super::*;

fn to(text: &str) -> Destination {
    match text.parse() {
        Ok(address) => Destination::Address(address),
        Err(_) => Destination::Name(Hostname::parse(text).unwrap()),
    }
}

fn judge(allow: &[&str], deny: &[&str], otherwise: Otherwise) -> Judge {
    let allow = allow.iter().map(|rule| rule.parse().unwrap()).collect();
    let deny = deny.iter().map(|rule| rule.parse().unwrap()).collect();
    Judge::new(&EgressPolicy::rules(allow, deny, otherwise)).unwrap()
}

fn reason(judge: &Judge, destination: &str, port: u16) -> DecisionReason {
    judge.decide(&to(destination), port, Protocol::Tcp).reason
}

#[test]
fn nothing_is_allowed_by_nothing() {
    let judge = Judge::new(&EgressPolicy::default()).unwrap();
    for destination in ["example.com", "1.1.1.1", "2606:4700:4700::1111"] {
        let ruling = judge.decide(&to(destination), 443, Protocol::Tcp);
        assert_eq!((ruling.verdict, ruling.reason), (Verdict::Denied, DecisionReason::NotAllowed));
    }
    assert_eq!(reason(&judge, "10.0.0.1", 443), DecisionReason::ForbiddenAddress);
    assert_eq!(reason(&judge, CONTROL, 80), DecisionReason::Control);
    assert_eq!(reason(&judge, CONTROL, 443), DecisionReason::PortNotAllowed);
}

const CONTROL: &str = crate::control::CONTROL_NAME;

#[test]
fn the_default_allows_public_addresses_by_tcp_and_no_local_name() {
    let judge = Judge::new(&EgressPolicy::AllowAll).unwrap();
    assert_eq!(reason(&judge, "example.com", 22), DecisionReason::Default);
    assert_eq!(reason(&judge, "1.1.1.1", 22), DecisionReason::Default);
    for destination in [
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "198.18.0.1",
        "::1",
        "fd00::1",
        "localhost",
        "a.localhost",
    ] {
        assert_eq!(reason(&judge, destination, 80), DecisionReason::ForbiddenAddress, "{destination}");
    }
    assert!(!judge.decide(&to("1.1.1.1"), 53, Protocol::Udp).is_allowed());
    assert!(!judge.serves(&Hostname::parse("localhost").unwrap()).ruling.is_allowed());
}

#[test]
fn allow_goes_before_deny_and_deny_before_the_default() {
    let judge = judge(
        &["api.example.com", "10.1.0.0/16:5432"],
        &["*.example.com", "10.0.0.0/8", "1.0.0.0/8:25"],
        Otherwise::Allow,
    );
    for (destination, port, expected) in [
        ("api.example.com", 443, DecisionReason::Rule),
        ("api.example.com", 8443, DecisionReason::DenyRule),
        ("www.example.com", 443, DecisionReason::DenyRule),
        ("example.com", 443, DecisionReason::Default),
        ("10.1.2.3", 5432, DecisionReason::Rule),
        ("10.1.2.3", 22, DecisionReason::DenyRule),
        ("1.1.1.1", 25, DecisionReason::DenyRule),
        ("1.1.1.1", 443, DecisionReason::Default),
        ("192.168.0.1", 443, DecisionReason::ForbiddenAddress),
    ] {
        assert_eq!(reason(&judge, destination, port), expected, "{destination}:{port}");
    }
}

#[test]
fn a_private_address_is_meant_only_from_within_its_block() {
    let judge = judge(&["0.0.0.0/0:any", "8.0.0.0/5:any", "192.168.7.0/24:80"], &[], Otherwise::Deny);
    assert_eq!(reason(&judge, "8.8.8.8", 80), DecisionReason::Rule);
    assert_eq!(reason(&judge, "10.0.0.1", 80), DecisionReason::ForbiddenAddress);
    assert_eq!(reason(&judge, "192.168.7.7", 80), DecisionReason::Rule);
    assert_eq!(reason(&judge, "192.168.7.7", 81), DecisionReason::PortNotAllowed);
    assert_eq!(reason(&judge, "169.254.169.254", 80), DecisionReason::ForbiddenAddress);
}

#[test]
fn where_a_name_leads_is_judged_again() {
    let judge = judge(&["rule.test", "10.9.0.0/16:443"], &["8.8.0.0/16"], Otherwise::Allow);
    let by_rule = judge.decide(&to("rule.test"), 443, Protocol::Tcp);
    let by_default = judge.decide(&to("other.test"), 443, Protocol::Tcp);
    let permits = |ruling, address: &str| judge.permits(ruling, address.parse().unwrap(), 443, Protocol::Tcp);
    assert!(permits(&by_rule, "8.8.8.8") && !permits(&by_default, "8.8.8.8"));
    assert!(permits(&by_rule, "10.9.1.1") && permits(&by_default, "10.9.1.1"));
    for address in
        ["10.8.1.1", "127.0.0.1", "169.254.169.254", "0.0.0.0", "::ffff:8.8.4.4", "64:ff9b::808:808"]
    {
        assert!(!permits(&by_rule, address) && !permits(&by_default, address), "{address}");
    }
    assert!(permits(&by_default, "2606:4700:4700::1111"));
    assert!(!judge.permits(&by_rule, "10.9.1.1".parse().unwrap(), 80, Protocol::Tcp));
}

#[test]
fn the_most_specific_rule_decides_and_one_that_injects_first() {
    let secret = HeaderInjection::new("x-key", "v").unwrap();
    let rule = |text: &str| text.parse::<sandbar_core::EgressRule>().unwrap();
    let policy = EgressPolicy::rules(
        vec![
            rule("*.test:any"),
            rule("api.test"),
            rule("api.test:443").with_header(secret),
            rule("*.api.test:443"),
        ],
        Vec::new(),
        Otherwise::Deny,
    );
    let judge = Judge::new(&policy).unwrap();
    let deciding = |destination, port| judge.decide(&to(destination), port, Protocol::Tcp);
    let injecting = deciding("api.test", 443);
    assert_eq!(injecting.rule.as_deref(), Some("api.test:443"));
    assert!(injecting.inject.is_some());
    assert_eq!(deciding("api.test", 80).rule.as_deref(), Some("api.test:80,443"));
    assert_eq!(deciding("api.test", 22).rule.as_deref(), Some("*.test:any"));
    assert_eq!(deciding("a.api.test", 443).rule.as_deref(), Some("*.api.test:443"));
    assert_eq!(deciding("test", 443).reason, DecisionReason::NotAllowed);
}

#[test]
fn the_resolver_serves_what_some_rule_or_the_default_allows() {
    let judge =
        judge(&["a.test:22", "*.w.test", "u.test:53/udp"], &["*.d.test", "p.test:25"], Otherwise::Allow);
    let serves = |text: &str| {
        let served = judge.serves(&Hostname::parse(text).unwrap());
        (served.ruling.reason, served.spelled)
    };
    assert_eq!(serves("a.test"), (DecisionReason::Rule, Spelled::Full));
    assert_eq!(serves("abc.w.test"), (DecisionReason::Rule, Spelled::Below(3)));
    assert_eq!(serves("u.test"), (DecisionReason::Rule, Spelled::Full));
    assert_eq!(serves("x.d.test"), (DecisionReason::DenyRule, Spelled::Not));
    assert_eq!(serves("p.test"), (DecisionReason::Default, Spelled::Not));
    assert_eq!(serves(CONTROL), (DecisionReason::Control, Spelled::Full));
    assert_eq!((judge.udp_ports(1), judge.udp_ports(0)), (Ok([53].into()), Err(53)));
    assert_eq!(judge.udp_rule(53).unwrap(), "u.test:53/udp");
}

#[test]
fn an_explanation_says_that_a_retry_will_not_help() {
    let judge = judge(&["a.test"], &[], Otherwise::Deny);
    let denied = judge.explain(&to("b.test"), 443, Protocol::Tcp);
    assert_eq!(
        denied.sentence,
        "`b.test` at port 443 by tcp is denied: the sandbox's egress policy does not allow this host. A retry will not help."
    );
    let allowed = judge.explain(&to("a.test"), 443, Protocol::Tcp);
    assert_eq!((allowed.verdict, allowed.rule.as_deref()), (Verdict::Allowed, Some("a.test:80,443")));
}

#[test]
fn ten_thousand_rules_are_as_right_as_one() {
    let count = 10_000;
    let mut allow: Vec<String> = (0..count / 2).map(|n| format!("h{n}.example.com")).collect();
    allow.extend((0..count / 4).map(|n| format!("same.example.com:{}", n + 1)));
    allow.extend((0..count / 4).map(|n| format!("11.{}.{}.0/24", n / 250, n % 250)));
    let judge = Judge::new(&EgressPolicy::allow(allow.iter().map(String::as_str)).unwrap()).unwrap();
    let allows = |host: &str, port| judge.decide(&to(host), port, Protocol::Tcp).is_allowed();
    for n in [0, 1, 2499, count / 2 - 1] {
        assert!(allows(&format!("h{n}.example.com"), 443) && !allows(&format!("h{n}.example.com"), 22));
    }
    assert!(allows("same.example.com", 1) && allows("same.example.com", 2500));
    assert!(!allows("same.example.com", 2501) && !allows("h5000.example.com", 443));
    assert!(allows("11.9.249.9", 80) && !allows("11.9.250.9", 80) && !allows("11.10.0.1", 80));
}

fn names() -> impl Strategy<Value = String> {
    prop::collection::vec(prop_oneof!["a", "b", "test"], 1..4).prop_map(|labels| labels.join("."))
}

fn addresses() -> impl Strategy<Value = std::net::Ipv4Addr> {
    let high =
        prop_oneof![Just(8u8), Just(10), Just(127), Just(169), Just(172), Just(192), Just(198), Just(100)];
    let next = prop_oneof![Just(0u8), Just(16), Just(18), Just(64), Just(100), Just(168), Just(254)];
    (high, next, 0u8..3, 0u8..3).prop_map(|(a, b, c, d)| std::net::Ipv4Addr::new(a, b, c, d))
}

fn targets() -> impl Strategy<Value = String> {
    prop_oneof![
        names(),
        names().prop_map(|name| format!("*.{name}")),
        (addresses(), 0u8..=32)
            .prop_map(|(address, bits)| Cidr::around(address.into(), bits).unwrap().to_string()),
    ]
}

fn ports() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("any".to_owned()),
        (1u16..9).prop_map(|port| port.to_string()),
        (1u16..5, 5u16..9).prop_map(|(first, last)| format!("{first}-{last}")),
        (1u16..4, 5u16..9).prop_map(|(first, last)| format!("{first},{last}")),
    ]
}

fn policies() -> impl Strategy<Value = EgressPolicy> {
    let allow = (targets(), ports(), prop_oneof![Just(""), Just("/udp")])
        .prop_map(|(to, ports, protocol)| format!("{to}:{ports}{protocol}").parse().unwrap());
    let deny = (targets(), ports()).prop_map(|(to, ports)| format!("{to}:{ports}").parse().unwrap());
    let otherwise = prop_oneof![Just(Otherwise::Deny), Just(Otherwise::Allow)];
    (prop::collection::vec(allow, 0..12), prop::collection::vec(deny, 0..6), otherwise)
        .prop_map(|(allow, deny, otherwise)| EgressPolicy::rules(allow, deny, otherwise))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_decides_as_the_sentences_say(
        policy in policies(),
        destinations in prop::collection::vec(
            prop_oneof![
                names().prop_map(|name| to(&name)),
                addresses().prop_map(|address| Destination::Address(address.into())),
            ],
            1..12,
        ),
        port in 1u16..10,
        protocol in prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)],
    ) {
        let judge = Judge::new(&policy).unwrap();
        for destination in destinations {
            let ruling = judge.decide(&destination, port, protocol);
            let (reason, rule) = oracle::decide(&policy, &destination, port, protocol);
            let got = (ruling.reason, ruling.rule.as_deref().map(ToOwned::to_owned));
            prop_assert_eq!(got, (reason, rule), "{} {} {}", destination, port, protocol);
            let allowing = [DecisionReason::Rule, DecisionReason::Default].contains(&reason);
            prop_assert_eq!(ruling.is_allowed(), allowing);
            if let Destination::Name(name) = &destination
                && allowing
            {
                prop_assert!(judge.serves(name).ruling.is_allowed(), "{} is allowed and has no address", name);
            }
        }
    }
}

#[test]
fn a_port_that_is_not_allowed_is_told_with_the_rule_for_others() {
    let judge = judge(&["*.b.test:1", "a.test:443,8443", "a.test:123/udp"], &[], Otherwise::Deny);
    for (port, protocol) in [(22, Protocol::Tcp), (443, Protocol::Udp)] {
        let told = judge.explain(&Destination::Name(Hostname::parse("a.test").unwrap()), port, protocol);
        assert_eq!(
            (told.reason, told.rule.as_deref()),
            (DecisionReason::PortNotAllowed, Some("a.test:443,8443"))
        );
        assert!(told.sentence.contains("allows port 443,8443 by tcp"), "{}", told.sentence);
    }
}
