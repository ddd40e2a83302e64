use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use crate::harness::{Home, both, code, signal, start};

const KEYS: [&str; 11] = [
    "id",
    "name",
    "at",
    "cpu_seconds",
    "cpu_percent",
    "cpu_count",
    "memory_bytes",
    "memory_peak_bytes",
    "memory_limit_bytes",
    "disk_bytes",
    "processes",
];

#[test]
fn what_a_sandbox_uses_is_told() {
    let home = Home::new();
    assert_eq!(home.json(&["stats", "--json"]), json!({"version": 1, "sandboxes": []}));
    let id = home.create(&["--name", "demo", "--memory", "256M"]);
    let other = home.create(&[]);
    home.text(&["exec", &id, "--", "sh", "-c", "head -c 3000000 /dev/zero > /tmp/file"]);
    let all = home.json(&["stats", "--json"]);
    let ids: Vec<_> = all["sandboxes"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [id.as_str(), other.as_str()]);
    let one = &home.json(&["stats", "demo", "--json"])["sandboxes"][0];
    for key in KEYS {
        assert!(one.get(key).is_some(), "{key}: {one}");
    }
    assert_eq!((&one["name"], &one["memory_limit_bytes"]), (&json!("demo"), &json!(256 << 20)));
    assert!(one["cpu_percent"].is_null(), "a share of no time: {one}");
    assert!(one["disk_bytes"].as_u64().is_none_or(|bytes| bytes >= 3_000_000), "{one}");
    let text = home.text(&["stats"]);
    assert!(text.starts_with("ID ") && text.contains("demo") && text.contains("256M"), "{text}");
    let absent = home.run(&["stats", "no-such-sandbox"]);
    assert_eq!(code(&absent), 1, "{}", both(&absent));
}

#[test]
fn watching_tells_the_share_of_a_core() {
    let home = Home::new();
    let id = home.create(&[]);
    let mut busy = start(&mut home.sandbar(&["exec", &id, "--", "sh", "-c", "while :; do :; done"]));
    let arguments = ["stats", &id, "--watch", "--interval", "300ms", "--json"];
    let mut watch = start(&mut home.sandbar_in_foreground(&arguments));
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut shares = lines.map(|line| {
        let form: Value = serde_json::from_str(&line.unwrap()).unwrap();
        form["sandboxes"][0].clone()
    });
    let first = shares.next().unwrap();
    assert!(first["cpu_percent"].is_null(), "{first}");
    if first["cpu_seconds"].is_null() {
        // No control group counts here.
        assert!(shares.next().unwrap()["cpu_percent"].is_null());
    } else {
        let busy = shares.take(50).find(|one| one["cpu_percent"].as_f64().is_some_and(|share| share > 10.0));
        assert!(busy.is_some(), "a loop that uses no processor");
    }
    signal(&watch, "INT");
    let output = watch.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{}", both(&output));
    assert!(output.stderr.is_empty(), "{}", both(&output));
    home.text(&["destroy", &id]);
    busy.wait().unwrap();
}
