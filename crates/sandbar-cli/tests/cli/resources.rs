use serde_json::json;

use crate::harness::{Home, both, code};

#[test]
fn limits_are_shown_and_changed() {
    let home = Home::new();
    let id = home.create(&["--memory", "256M"]);
    assert!(home.text(&["resources", &id]).contains("memory   256 MiB"));
    let changed = home.json(&["resources", &id, "--memory", "512M", "--json"]);
    assert_eq!((&changed["id"], &changed["limits"]["memory"]["value"]), (&json!(id), &json!(512 << 20)));
    assert_eq!(home.json(&["describe", &id, "--json"])["limits"], changed["limits"]);
    for arguments in [
        &["resources", &id, "--memory", "0"][..],
        &["resources", &id, "--require-enforced-limits"],
        &["resources"],
    ] {
        assert_eq!(code(&home.run(arguments)), 2, "{arguments:?}");
    }
    assert_eq!(code(&home.run(&["resources", "no-such-sandbox", "--pids", "9"])), 1);
    // A demand that nothing here meets.
    let output = home.run(&["resources", &id, "--disk", "64M", "--require-enforced-limits"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert_eq!(home.json(&["describe", &id, "--json"])["limits"], changed["limits"]);
}

#[test]
fn room_is_measured() {
    let home = Home::new();
    let capacity = home.json(&["capacity", "--json"]);
    for key in ["version", "admits", "detail", "disk_bytes", "inodes", "memory_bytes"] {
        assert!(capacity.get(key).is_some(), "{key}: {capacity}");
    }
    assert!(
        capacity["disk_bytes"].as_u64() > Some(0) && capacity["memory_bytes"].as_u64() > Some(0),
        "{capacity}"
    );
    assert!(home.text(&["capacity"]).contains("memory "));
    assert!(!home.data().exists(), "measuring makes nothing");
}

#[test]
fn what_ended_is_known() {
    let home = Home::new();
    assert_eq!(home.json(&["usage", "--json"]), json!({"version": 1, "sandboxes": [], "unreadable": 0}));
    let id = home.create(&["--name", "demo"]);
    assert_eq!(code(&home.run(&["usage", "demo"])), 1, "it lives");
    home.text(&["exec", "demo", "--", "true"]);
    assert_eq!(code(&home.run(&["destroy", "demo"])), 0);
    let used = home.json(&["usage", "demo", "--json"]);
    let one = &used["sandboxes"][0];
    assert_eq!((&one["id"], &one["name"], &one["cause"]), (&json!(id), &json!("demo"), &json!("destroyed")));
    assert!(one["wall_seconds"].as_f64() > Some(0.0), "{one}");
    for key in ["created_at", "started_at", "ended_at", "cpu_seconds", "memory_peak_bytes", "disk_bytes"] {
        assert!(one.get(key).is_some(), "{key}: {one}");
    }
    assert!(home.text(&["usage"]).contains("destroyed"));
    // A command's own sandbox is written down as well.
    home.text(&["run", "--", "true"]);
    assert_eq!(home.json(&["usage", "--json"])["sandboxes"].as_array().unwrap().len(), 2);
}
