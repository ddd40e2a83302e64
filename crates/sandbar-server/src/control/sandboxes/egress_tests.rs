use sandbar_wire::e2b::NetworkConfig;

use super::*;

fn policy(json: &str, internet: Option<bool>) -> ApiResult<EgressPolicy> {
    let config: NetworkConfig = serde_json::from_str(json).unwrap();
    Egress::of_config(Some(&config), internet).policy(DefaultEgress::Internet)
}

fn shown(policy: &EgressPolicy) -> String {
    let EgressPolicy::Rules(rules) = policy else { return policy.kind().to_owned() };
    let allow: Vec<_> = rules
        .allow
        .iter()
        .map(|rule| format!("+{rule}{}", if rule.inject.is_empty() { "" } else { "!" }))
        .collect();
    let deny: Vec<_> = rules.deny.iter().map(|rule| format!("-{rule}")).collect();
    format!("{} {} {:?}", allow.join(" "), deny.join(" "), rules.otherwise)
}

fn ok(json: &str) -> String {
    shown(&policy(json, None).unwrap_or_else(|error| panic!("{json}: {}", error.message)))
}

fn refused(json: &str) -> String {
    policy(json, None).expect_err(json).message
}

#[test]
fn allow_goes_before_deny_and_deny_before_the_default() {
    assert_eq!(ok("{}"), "allow-all");
    // An allowed address alone blocks nothing.
    assert_eq!(ok(r#"{"allowOut":["1.1.1.1"]}"#), "+1.1.1.1/32:any  Allow");
    assert_eq!(ok(r#"{"denyOut":["8.8.8.8"]}"#), " -8.8.8.8/32 -[::/0] Allow");
    assert_eq!(ok(r#"{"denyOut":["0.0.0.0/0"]}"#), "deny-all");
    assert_eq!(
        ok(r#"{"allowOut":["1.1.1.0/24"],"denyOut":["0.0.0.0/0","8.8.8.8"]}"#),
        "+1.1.1.0/24:any  Deny"
    );
    assert_eq!(
        ok(r#"{"allowOut":["Example.COM","*.example.org"],"denyOut":["0.0.0.0/0"]}"#),
        "+example.com:80,443 +*.example.org:80,443  Deny"
    );
    assert_eq!(ok(r#"{"denyOut":["1.2.3.4/8"]}"#), " -1.0.0.0/8 -[::/0] Allow");
}

#[test]
fn no_internet_denies_everything_else_and_keeps_what_is_allowed() {
    assert_eq!(shown(&policy("{}", Some(false)).unwrap()), "deny-all");
    let json = r#"{"allowOut":["1.1.1.1","a.test"],"denyOut":["8.8.8.8"]}"#;
    assert_eq!(shown(&policy(json, Some(false)).unwrap()), "+1.1.1.1/32:any +a.test:80,443  Deny");
}

#[test]
fn the_default_is_the_operator_s_where_nothing_is_said() {
    let nothing = Egress::default();
    assert_eq!(nothing.policy(DefaultEgress::None).unwrap(), EgressPolicy::DenyAll);
    assert_eq!(nothing.policy(DefaultEgress::Internet).unwrap(), EgressPolicy::AllowAll);
    let yes = Egress { internet: Some(true), ..nothing };
    assert_eq!(yes.policy(DefaultEgress::None).unwrap(), EgressPolicy::AllowAll);
    let no = Egress { internet: Some(false), ..nothing };
    assert_eq!(no.policy(DefaultEgress::Internet).unwrap(), EgressPolicy::DenyAll);
}

#[test]
fn what_has_no_meaning_is_refused() {
    let all = "'ALL_TRAFFIC' in deny out";
    assert!(refused(r#"{"allowOut":["a.test"]}"#).contains(all));
    assert!(refused(r#"{"allowOut":["a.test"],"denyOut":["8.8.8.8"]}"#).contains(all));
    assert!(refused(r#"{"denyOut":["a.test"]}"#).starts_with("invalid denied CIDR"));
    for unspecified in ["0.0.0.0", "::"] {
        assert!(refused(&format!(r#"{{"allowOut":["{unspecified}"]}}"#)).contains("unspecified"));
        assert!(refused(&format!(r#"{{"denyOut":["{unspecified}"]}}"#)).contains("unspecified"));
    }
    for private in
        ["10.1.2.3", "100.64.0.0/10", "127.0.0.1", "169.254.169.254", "172.16.0.0/16", "192.168.0.1"]
    {
        assert!(refused(&format!(r#"{{"allowOut":["{private}"]}}"#)).contains("denied to every sandbox"));
    }
    for bad in ["", "a b", "http://a.test", "a.test:80", "1.2.3.4/33", "1.2.3", "*", "a.*", "[::1]"] {
        refused(&format!(r#"{{"allowOut":["{bad}"],"denyOut":["0.0.0.0/0"]}}"#));
    }
    assert!(refused(r#"{"egressProxy":{"address":"p:1"}}"#).contains("egressProxy"));
}

const KEY: &str = r#"[{"transform":{"headers":{"X-Key":"v"}}}]"#;

#[test]
fn a_rule_changes_what_is_allowed_and_allows_nothing() {
    assert_eq!(ok(&format!(r#"{{"rules":{{"a.test":{KEY}}}}}"#)), "+a.test:80,443!  Allow");
    let with = |allow: &str, rule: &str| {
        ok(&format!(r#"{{"allowOut":["{allow}"],"denyOut":["0.0.0.0/0"],"rules":{{"{rule}":{KEY}}}}}"#))
    };
    assert_eq!(with("a.test", "a.test"), "+a.test:80,443 +a.test:80,443!  Deny");
    assert_eq!(with("*.test", "a.test"), "+*.test:80,443 +a.test:80,443!  Deny");
    assert_eq!(with("a.test", "*.test"), "+a.test:80,443 +a.test:80,443!  Deny");
    assert_eq!(with("b.test", "a.test"), "+b.test:80,443  Deny");
    assert_eq!(ok(&format!(r#"{{"denyOut":["0.0.0.0/0"],"rules":{{"a.test":{KEY}}}}}"#)), "deny-all");
}

#[test]
fn rules_are_bounded() {
    let many: Vec<_> = (0..11).map(|n| format!(r#""n{n}.test":{KEY}"#)).collect();
    assert!(refused(&format!(r#"{{"rules":{{{}}}}}"#, many.join(","))).contains("11 domains"));
    let two = r#"{"rules":{"a.test":[{"transform":{}},{"transform":{}}]}}"#;
    assert!(refused(two).contains("2 transforms"));
    for (name, value) in [("X".repeat(65), String::new()), ("X".into(), "v".repeat(2049))] {
        let json =
            format!(r#"{{"rules":{{"a.test":[{{"transform":{{"headers":{{"{name}":"{value}"}}}}}}]}}}}"#);
        let message = refused(&json);
        assert!(message.contains("too long") && !message.contains("vvv"), "{message}");
    }
    let token = r#"{"rules":{"a.test":[{"transform":{"headers":{"A":"Bearer ${e2b.identity.tokens.x}"}}}]}}"#;
    assert!(refused(token).contains("placeholder"));
    let host = r#"{"rules":{"a.test":[{"transform":{"headers":{"Host":"b.test"}}}]}}"#;
    assert!(refused(host).contains("can't be injected"));
}
