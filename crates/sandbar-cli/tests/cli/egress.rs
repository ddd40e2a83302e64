use crate::harness::{Home, both, code};

#[test]
fn an_absent_sandbox_is_told_from_a_denial() {
    let home = Home::new();
    for (expected, arguments) in [
        (1, &["network", "no-such-sandbox"][..]),
        (1, &["network", "no-such-sandbox", "set", "--deny-all"]),
        (1, &["egress", "log", "no-such-sandbox"]),
        // 1 says that the policy denies it.
        (125, &["egress", "why", "no-such-sandbox", "example.com"]),
    ] {
        let output = home.run(arguments);
        assert_eq!(code(&output), expected, "{arguments:?}: {}", both(&output));
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.stdout.is_empty() && words.contains("`no-such-sandbox`"), "{arguments:?}: {words}");
    }
}

#[test]
fn the_record_says_what_may_be_reached() {
    let home = Home::new();
    let id = home.create(&[]);
    assert_eq!(home.json(&["describe", &id, "--json"])["egress"]["policy"], "deny-all");
    assert!(home.text(&["describe", &id]).contains("\negress      deny-all"));
}
