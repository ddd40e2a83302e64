use proptest::prelude::*;
use sandbar_core::ErrorKind;
use serde_json::json;

use super::*;

fn policy(allow: &[&str], deny: &[&str], otherwise: Otherwise) -> EgressPolicy {
    let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
    EgressPolicy::rules(allow, deny.iter().map(|text| text.parse().unwrap()).collect(), otherwise)
}

fn said(policy: &EgressPolicy) -> serde_json::Value {
    let words = words("create", policy).unwrap();
    json!({"network": words.config(), "internet": words.internet()})
}

#[test]
fn an_allow_list_never_goes_without_its_partner() {
    let list = policy(&["example.test", "*.example.test", "192.0.2.0/24:any"], &[], Otherwise::Deny);
    assert_eq!(
        said(&list),
        json!({"network": {"allowOut": ["example.test", "*.example.test", "192.0.2.0/24"], "denyOut": ["0.0.0.0/0"]}, "internet": null})
    );
    assert_eq!(
        said(&EgressPolicy::DenyAll),
        json!({"network": {"denyOut": ["0.0.0.0/0"]}, "internet": null})
    );
    assert_eq!(said(&EgressPolicy::AllowAll), json!({"network": null, "internet": true}));
}

#[test]
fn what_e2b_can_not_say_is_refused_by_the_rule() {
    for (allow, deny, otherwise, named) in [
        (vec!["example.test:22"], vec![], Otherwise::Deny, "example.test:22"),
        (vec!["example.test:53/udp"], vec![], Otherwise::Deny, "example.test:53/udp"),
        (vec!["192.0.2.0/24:443"], vec![], Otherwise::Deny, "192.0.2.0/24:443"),
        (vec!["10.1.2.0/24:any"], vec![], Otherwise::Deny, "10.1.2.0/24:any"),
        (vec!["[2001:db8::/32]:any"], vec![], Otherwise::Deny, "[2001:db8::/32]:any"),
        (vec!["example.test"], vec![], Otherwise::Allow, "example.test"),
        (vec![], vec!["example.test"], Otherwise::Allow, "example.test"),
        (vec![], vec!["2001:db8::/32"], Otherwise::Allow, "2001:db8::/32"),
    ] {
        let error = words("create", &policy(&allow, &deny, otherwise)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{named}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[test]
fn values_of_headers_are_sent_and_never_read_back() {
    let rule: EgressRule = "api.example.test".parse().unwrap();
    let rule = rule.with_header(HeaderInjection::new("X-Key", "s3cret").unwrap());
    let words = words("create", &EgressPolicy::rules(vec![rule], vec![], Otherwise::Deny)).unwrap();
    assert!(!format!("{words:?}").contains("s3cret"));
    let config = words.config().unwrap();
    assert_eq!(
        json!(config.rules),
        json!({"api.example.test": [{"transform": {"headers": {"x-key": "s3cret"}}}]})
    );
    let read = read(Some(&config), None, true).unwrap();
    let EgressPolicy::Rules(rules) = &read else { panic!("{read:?}") };
    assert_eq!((rules.allow[0].inject[0].header(), rules.allow[0].inject[0].reveal()), ("x-key", None));
    assert_eq!(super::words("set", &read).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn what_nobody_said_is_open_at_e2b_and_unknown_elsewhere() {
    assert_eq!(read(None, None, true), Some(EgressPolicy::AllowAll));
    assert_eq!(read(None, None, false), None);
    assert_eq!(read(None, Some(false), false), Some(EgressPolicy::DenyAll));
    let proxied = serde_json::from_value(json!({"egressProxy": {"address": "p:1"}})).unwrap();
    assert_eq!(read(Some(&proxied), Some(true), true), None);
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,8}\\.test", "\\*\\.[a-z]{1,8}\\.test", "(192\\.0\\.2|203\\.0\\.113)\\.[0-9]/32:any"]
}

proptest! {
    #[test]
    fn a_policy_that_is_sent_is_read_back(list in prop::collection::vec(names(), 0..6)) {
        let list: Vec<_> = list.iter().map(String::as_str).collect();
        let policy = if list.is_empty() { EgressPolicy::DenyAll } else { policy(&list, &[], Otherwise::Deny) };
        let words = words("create", &policy).unwrap();
        prop_assert!(words.config().unwrap().deny_out.unwrap().contains(&ALL_TRAFFIC.to_owned()));
        prop_assert_eq!(read(words.config().as_ref(), words.internet(), false), Some(policy));
    }

    #[test]
    fn any_words_are_read(allow in prop::option::of(prop::collection::vec(".*", 0..4)), deny in prop::option::of(prop::collection::vec(".*", 0..4))) {
        let config = NetworkConfig { allow_out: allow, deny_out: deny, ..NetworkConfig::default() };
        let _ = read(Some(&config), None, true);
    }
}
