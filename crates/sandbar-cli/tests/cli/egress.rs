use std::io::{BufRead, BufReader};
use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{Home, PATIENCE, both, code, signal, signal_to, start, wait_until};

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

/// Whether sandboxes have a gateway here.
fn has_gateway(home: &Home, id: &str) -> bool {
    let has_one = !home.json(&["describe", id, "--json"])["egress"]["gateway"].is_null();
    if !has_one {
        println!("skipped: no gateway on this machine");
    }
    has_one
}

#[test]
fn what_is_set_is_shown_and_explained() {
    let home = Home::new();
    let id = home.create(&["--allow", "a.example.test"]);
    if !has_gateway(&home, &id) {
        return;
    }
    let why = |host: &str, expected: i32| {
        let output = home.run(&["egress", "why", &id, host]);
        assert_eq!(code(&output), expected, "{host}: {}", both(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(why("a.example.test", 0).starts_with("allowed a.example.test:443"));
    let denied = why("b.example.test", 1);
    assert!(
        denied.contains("policy does not allow this host") && denied.contains("retry does not help"),
        "{denied}"
    );
    let shown = home.text(&[
        "network",
        &id,
        "set",
        "--allow",
        "b.example.test:8443",
        "--allow-cidr",
        "10.20.30.0/24:5432",
    ]);
    assert!(shown.contains("b.example.test:8443") && !shown.contains("a.example.test"), "{shown}");
    assert!(why("a.example.test", 1).starts_with("denied"));
    assert!(why("b.example.test:8443", 0).contains("rule  b.example.test:8443"));
    assert!(why("b.example.test", 1).contains("not at this port"));
    why("10.20.30.7:5432", 0);
    why("10.20.31.7:5432", 1);
    let shown = home.json(&["network", &id, "--json"]);
    assert_eq!(shown["gateway"], "serving");
    assert_eq!(shown["policy"]["rules"]["allow"].as_array().map(Vec::len), Some(2), "{shown}");
    assert_eq!(home.json(&["describe", &id, "--json"])["egress"]["policy"], shown["policy"]);

    // What can't be had is told by its rule, and changes nothing.
    for (option, rule, expected) in [
        ("--allow", "c.example.test:53/udp", 125),
        ("--allow-cidr", "[2001:db8::/32]:443", 125),
        ("--allow-cidr", "127.0.0.0/8", 2),
    ] {
        let output = home.run(&["network", &id, "set", option, rule]);
        assert_eq!(code(&output), expected, "{rule}: {}", both(&output));
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains(rule.trim_start_matches('[')) || words.contains(rule), "{words}");
        assert!(words.contains("hint:"), "{words}");
    }
    assert_eq!(home.json(&["network", &id, "--json"])["policy"], shown["policy"]);
    assert!(home.text(&["network", &id, "set", "--deny-all"]).contains("deny-all"));
    assert!(why("b.example.test:8443", 1).starts_with("denied"));
}

#[test]
fn decisions_are_followed_until_somebody_asks_for_the_end_or_nobody_reads() {
    let home = Home::new();
    let id = home.create(&[]);
    if !has_gateway(&home, &id) {
        return;
    }
    let set = |host: &str| drop(home.text(&["network", &id, "set", "--allow", host]));
    for expected in [130, 141] {
        let arguments = ["egress", "log", &id, "--follow", "--tail", "0", "--json"];
        let mut follower = start(&mut home.sandbar_in_foreground(&arguments));
        let mut lines = BufReader::new(follower.stdout.take().expect("a pipe")).lines();
        // What was decided before it began is not shown; it may take its time to begin.
        let line = std::thread::scope(|scope| {
            let first = scope.spawn(|| lines.next().expect("a line").expect("text"));
            let mut count = 0;
            wait_until("a decision", || {
                count += 1;
                set(&format!("n{count}.example.test"));
                first.is_finished()
            });
            first.join().expect("no panic")
        });
        let decision: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((&decision["kind"], &decision["reason"]), (&json!("policy"), &json!("policy_set")));
        if expected == 130 {
            signal(&follower, "INT");
        } else {
            drop(lines);
        }
        let begun = Instant::now();
        wait_until("its end", || follower.try_wait().expect("a look").is_some());
        assert_eq!(follower.wait().expect("an end").code(), Some(expected));
        assert!(begun.elapsed() < PATIENCE);
    }
    let all = home.text(&["egress", "log", &id]);
    assert!(all.lines().count() >= 2 && all.lines().all(|line| line.contains("policy")), "{all}");
    assert_eq!(home.text(&["egress", "log", &id, "--denied"]), "");
    assert_eq!(home.text(&["egress", "log", &id, "--tail", "1"]), all.lines().last().expect("a line"));
}

#[test]
fn a_follower_ends_with_the_sandbox() {
    let home = Home::new();
    let id = home.create(&[]);
    if !has_gateway(&home, &id) {
        return;
    }
    let mut follower = start(&mut home.sandbar(&["egress", "log", &id, "-f"]));
    home.text(&["network", &id, "set", "--allow", "a.example.test"]);
    home.text(&["destroy", &id]);
    wait_until("its end", || follower.try_wait().expect("a look").is_some());
    let output = follower.wait_with_output().expect("an end");
    // The sandbox may have been gone before it looked at all.
    assert!([0, 1].contains(&code(&output)), "{}", both(&output));
}

#[test]
fn a_gateway_that_died_is_told_and_comes_back_with_the_next_command() {
    let home = Home::new();
    let id = home.create(&["--allow", "a.example.test"]);
    if !has_gateway(&home, &id) {
        return;
    }
    let folder = home.data().join("sandboxes").join(&id);
    let record = std::fs::read(folder.join("record.json")).expect("a record");
    let record: Value = serde_json::from_slice(&record).expect("JSON");
    let shim =
        record["private"]["shim"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a shim");
    signal_to(shim, "KILL");
    let gateway = || home.json(&["describe", &id, "--json"])["egress"]["gateway"].clone();
    wait_until("its end", || gateway() == "down");
    let described = home.json(&["describe", &id, "--json"]);
    assert_eq!(described["state"], "running");
    assert!(
        described["reason"].as_str().is_some_and(|why| why.contains("gateway is down, so it has no network"))
    );
    assert!(home.text(&["describe", &id]).contains("gateway is down"), "people are told, too");
    assert_eq!(home.json(&["ls", "--json"])[0]["egress"]["gateway"], "down");
    // Still: looking brings nothing back.
    assert_eq!(gateway(), "down");
    let output = home.run(&["egress", "why", &id, "a.example.test"]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    let described = home.json(&["describe", &id, "--json"]);
    assert_eq!((&described["egress"]["gateway"], &described["reason"]), (&json!("serving"), &Value::Null));
}

/// Routes are changed from outside, and root without that right (as in many containers) is no owner of what its sandboxes are made in.
#[test]
fn without_the_right_to_route_addresses_are_refused_and_names_go_on() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to go without a right");
        return;
    }
    let home = Home::new();
    let without = |arguments: &[&str]| {
        let prefix = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"];
        home.sandbar_by(&prefix, arguments).output().expect("setpriv starts")
    };
    for option in [&["--allow-all"][..], &["--allow-cidr", "8.8.4.0/24:443"]] {
        let output = without(&[&["create"], option].concat());
        assert_eq!(code(&output), 125, "{}", both(&output));
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(
            words.contains("route") && words.contains("hint:") && words.contains("CAP_NET_ADMIN"),
            "{words}"
        );
        home.assert_empty();
    }
    let output = without(&["create", "--allow", "a.example.test"]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    let id = String::from_utf8(output.stdout).expect("text").trim().to_owned();
    let output =
        without(&["network", &id, "set", "--allow", "a.example.test", "--allow-cidr", "8.8.4.0/24:443"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains("8.8.4.0/24:443"), "what is not in force is named: {}", both(&output));
    let in_force = home.json(&["network", &id, "--json"])["policy"]["rules"]["allow"].clone();
    assert_eq!(in_force.as_array().map(Vec::len), Some(1), "and the rest is in force: {in_force}");
    assert_eq!(code(&home.run(&["egress", "why", &id, "a.example.test"])), 0);
}
