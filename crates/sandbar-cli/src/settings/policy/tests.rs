use std::fs;

use clap::Parser;

use super::*;

/// Only the options of a policy.
#[derive(Debug, Parser)]
struct Typed {
    #[command(flatten)]
    policy: PolicyArgs,
}

fn resolved(words: &[&str]) -> Result<Option<EgressPolicy>> {
    resolve(Typed::try_parse_from([&["x"], words].concat()).unwrap().policy)
}

fn rules(words: &[&str]) -> EgressRules {
    match resolved(words).unwrap() {
        Some(EgressPolicy::Rules(rules)) => rules,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn allowed(rules: &EgressRules) -> Vec<String> {
    rules.allow.iter().map(ToString::to_string).collect()
}

/// Message and hint of a refusal.
fn refused(words: &[&str]) -> String {
    let failure = resolved(words).unwrap_err();
    assert_eq!(failure.status, crate::exit::ExitStatus::Usage);
    let error = failure.error.unwrap();
    format!("{error} ({})", error.hint().unwrap_or_default())
}

fn file(content: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, content).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn nothing_typed_is_the_backends_default_and_not_a_policy() {
    assert_eq!(resolved(&[]).unwrap(), None);
    assert_eq!(resolved(&["--deny-all"]).unwrap(), Some(EgressPolicy::DenyAll));
    assert_eq!(resolved(&["--allow-all"]).unwrap(), Some(EgressPolicy::AllowAll));
}

#[test]
fn what_is_typed_together_is_one_set_of_rules() {
    let typed = rules(&[
        "--allow",
        "example.com",
        "--allow-cidr",
        "10.1.0.0/16:5432",
        "--allow",
        "*.example.org:any",
    ]);
    assert_eq!(allowed(&typed), ["example.com:80,443", "*.example.org:any", "10.1.0.0/16:5432"]);
    assert_eq!((typed.deny.len(), typed.otherwise), (0, Otherwise::Deny));
    let typed = rules(&["--allow-all", "--allow-cidr", "10.0.0.0/8:5432", "--deny-cidr", "192.0.2.0/24"]);
    assert_eq!(allowed(&typed), ["10.0.0.0/8:5432"]);
    assert_eq!((typed.deny[0].to_string(), typed.otherwise), ("192.0.2.0/24".into(), Otherwise::Allow));
}

#[test]
fn a_denial_that_would_not_hold_is_refused() {
    let error = refused(&["--allow", "example.com", "--deny-cidr", "192.0.2.0/24"]);
    assert!(error.contains("denies nothing") && error.contains("`--allow-all`"), "{error}");
    for (allow, deny) in [
        ("192.0.2.0/24", "192.0.2.1"),
        ("0.0.0.0/0:443", "192.0.2.0/24"),
        ("192.0.2.0/24:any", "192.0.2.0/24"),
        ("192.0.2.0/24:443", "192.0.2.0/24:443"),
    ] {
        let error = refused(&["--allow-all", "--allow-cidr", allow, "--deny-cidr", deny]);
        assert!(error.contains("goes first") && error.contains(deny), "{allow} {deny}: {error}");
    }
    for (allow, deny) in [
        ("192.0.2.1", "192.0.2.0/24"),
        ("192.0.2.0/24:443", "192.0.2.0/24"),
        ("192.0.2.0/24:443", "192.0.2.1:80"),
        ("198.51.100.0/24", "192.0.2.0/24"),
        ("[2001:db8::]/32", "192.0.2.0/24"),
    ] {
        let allow = allow.replace("[2001:db8::]/32", "2001:db8::/32");
        rules(&["--allow-all", "--allow-cidr", &allow, "--deny-cidr", deny]);
    }
}

#[test]
fn a_file_is_a_policy_and_options_add_to_it() {
    let (_folder, path) = file(
        r#"{"rules": {"allow": [{"to": {"name": "*.example.org"}, "ports": "443", "inject": []}], "deny": [{"to": {"cidr": "192.0.2.0/24"}}], "otherwise": "allow"}}"#,
    );
    let read = rules(&["--egress-policy", &path]);
    assert_eq!(allowed(&read), ["*.example.org:443"]);
    assert_eq!((read.deny[0].to_string(), read.otherwise), ("192.0.2.0/24".into(), Otherwise::Allow));
    let more = rules(&["--egress-policy", &path, "--allow", "example.com", "--deny-cidr", "198.51.100.0/24"]);
    assert_eq!(allowed(&more), ["*.example.org:443", "example.com:80,443"]);
    assert_eq!(more.deny.len(), 2);
    let (_folder, path) = file(r#""deny-all""#);
    assert_eq!(resolved(&["--egress-policy", &path]).unwrap(), Some(EgressPolicy::DenyAll));
    assert_eq!(
        allowed(&rules(&["--egress-policy", &path, "--allow", "example.com"])),
        ["example.com:80,443"]
    );
}

#[test]
fn a_file_with_anything_that_is_not_understood_is_refused() {
    for (content, part) in [
        (r#"{"rules": {"allow": [], "denny": []}}"#, "/rules/denny"),
        (r#"{"rules": {"allow": [{"to": {"name": "example.com"}, "port": "443"}]}}"#, "/rules/allow/0/port"),
        (r#"{"rules": {"allow": [{"to": {"name": "exa mple.com"}}]}}"#, "not a host name"),
        (r#"{"rules": {"allow": [{"to": {"name": "example.com"}}]}, "more": 1}"#, "line 1"),
        (r#""allow-some""#, "allow-some"),
        ("", "EOF"),
    ] {
        let (_folder, path) = file(content);
        let error = refused(&["--egress-policy", &path]);
        assert!(error.contains(part) && error.contains(&path), "{content}: {error}");
    }
    assert!(refused(&["--egress-policy", "/no/such/file"]).contains("/no/such/file"));
}

#[test]
fn too_many_rules_are_refused_and_thousands_are_not() {
    let policy = |count: usize| {
        let rule = |number| format!(r#"{{"to": {{"name": "n{number}.example.com"}}}}"#);
        let rules: Vec<_> = (0..count).map(rule).collect();
        file(&format!(r#"{{"rules": {{"allow": [{}]}}}}"#, rules.join(",")))
    };
    let (_folder, path) = policy(sandbar::MAX_RULES);
    assert_eq!(rules(&["--egress-policy", &path]).allow.len(), sandbar::MAX_RULES);
    assert!(refused(&["--egress-policy", &path, "--allow", "example.com"]).contains("20001 egress rules"));
}

#[test]
fn a_header_goes_to_https_alone() {
    let (_folder, path) = file("Bearer hunter2\n");
    let inject = format!("api.example.com=Authorization:@{path}");
    let made = rules(&["--inject", &inject]);
    assert_eq!(allowed(&made), ["api.example.com:443"]);
    assert_eq!(made.allow[0].inject[0].header(), "authorization");
    assert_eq!(made.allow[0].inject[0].reveal(), Some("Bearer hunter2"));
    assert!(!format!("{made:?}").contains("hunter2"));
    let split = rules(&["--allow", "api.example.com", "--allow", "*.example.com", "--inject", &inject]);
    assert_eq!(allowed(&split), ["api.example.com:443", "api.example.com:80", "*.example.com:80,443"]);
    assert_eq!(split.allow.iter().map(|rule| rule.inject.len()).collect::<Vec<_>>(), [1, 0, 0]);
    let wide = rules(&["--allow", "api.example.com:any", "--inject", &inject]);
    assert_eq!(allowed(&wide), ["api.example.com:443", "api.example.com:1-442,444-65535"]);
    let more = format!("api.example.com=x-key:@{path}");
    let both = rules(&["--allow", "api.example.com:443", "--inject", &inject, "--inject", &more]);
    assert_eq!((allowed(&both), both.allow[0].inject.len()), (vec!["api.example.com:443".to_owned()], 2));
}

#[test]
fn secrets_are_taken_from_where_they_are_and_never_shown() {
    let inject = |source: &str| format!("api.example.com=authorization:{source}");
    let (_folder, path) = file("hunter2\r\n");
    assert_eq!(
        rules(&["--inject", &inject(&format!("@{path}"))]).allow[0].inject[0].reveal(),
        Some("hunter2")
    );
    let home = std::env::var("HOME").unwrap();
    assert_eq!(rules(&["--inject", &inject("env:HOME")]).allow[0].inject[0].reveal(), Some(home.as_str()));
    for (source, part) in [
        ("hunter2", "can't be given here"),
        ("env:SANDBAR_TEST_NOT_SET", "`SANDBAR_TEST_NOT_SET` is not set"),
        ("@/no/such/file", "/no/such/file"),
    ] {
        let error = refused(&["--inject", &inject(source)]);
        assert!(error.contains(part) && !error.contains("hunter2"), "{source}: {error}");
    }
    for (content, part) in
        [("\n", "is empty"), ("hunter2\nhunter2\n", "can't be sent"), ("hunter2\u{e9}", "can't be sent")]
    {
        let (_folder, path) = file(content);
        let error = refused(&["--inject", &inject(&format!("@{path}"))]);
        assert!(error.contains(part) && !error.contains("hunter2"), "{content:?}: {error}");
    }
    let twice = inject(&format!("@{path}"));
    assert!(refused(&["--inject", &twice, "--inject", &twice]).contains("given twice"));
    assert!(refused(&["--inject", &format!("api.example.com=host:@{path}")]).contains("`host`"));
}

#[test]
fn a_policy_that_was_shown_is_taken_back_with_its_values() {
    let (_folder, secret) = file("hunter2");
    let inject = format!("api.example.com=authorization:@{secret}");
    let policy = resolved(&["--allow", "example.org", "--inject", &inject]).unwrap().unwrap();
    let shown = serde_json::to_string(&policy).unwrap();
    assert!(!shown.contains("hunter2"));
    let (_folder, path) = file(&shown);
    let error = refused(&["--egress-policy", &path]);
    assert!(
        error.contains("its value is not known")
            && error.contains("`--inject api.example.com=authorization:SOURCE`"),
        "{error}"
    );
    assert_eq!(resolved(&["--egress-policy", &path, "--inject", &inject]).unwrap(), Some(policy));
    // A value in a file would be dropped, so it is refused; and none goes out in clear.
    let rule = |more: &str| {
        format!(
            r#"{{"rules": {{"allow": [{{"to": {{"name": "api.example.com"}}, "inject": [{{"header": "authorization"{more}}}]}}]}}}}"#
        )
    };
    let (_folder, path) = file(&rule(r#", "value": "hunter2""#));
    let error = refused(&["--egress-policy", &path, "--inject", &inject]);
    assert!(error.contains("/inject/0/value") && !error.contains("hunter2"), "{error}");
    let (_folder, path) = file(&rule(""));
    assert!(refused(&["--egress-policy", &path, "--inject", &inject]).contains("plain HTTP"));
}
