use serde_json::{Value, json};

use crate::harness::{Home, both, code};

const RECORD_KEYS: [&str; 18] = [
    "version",
    "id",
    "name",
    "project",
    "state",
    "template",
    "labels",
    "created_at",
    "started_at",
    "deadline",
    "on_deadline",
    "isolation",
    "limits",
    "last_kill",
    "ports",
    "egress",
    "main",
    "volumes",
];

#[test]
fn run_prints_one_object() {
    let home = Home::new();
    let output = home.run(&["run", "--json", "--", "sh", "-c", "echo out; printf '\\377' >&2; exit 3"]);
    assert_eq!(code(&output), 3, "{}", both(&output));
    assert!(output.stderr.is_empty(), "{}", both(&output));
    let mut printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(printed["id"].is_string() && printed["duration"].as_f64().unwrap() > 0.0);
    printed.as_object_mut().unwrap().retain(|key, _| !matches!(key.as_str(), "id" | "duration"));
    assert_eq!(
        printed,
        json!({
            "version": 1, "outcome": "exited", "code": 3, "signal": null, "cause": null,
            "stdout": "out\n", "stderr_base64": "/w==", "truncated": false,
        })
    );
}

#[test]
fn other_ends_have_their_words() {
    let home = Home::new();
    let id = home.create(&[]);
    let printed = |arguments: &[&str]| -> (i32, Value) {
        let output = home.run(&[&["exec", &id, "--json"], arguments].concat());
        (
            code(&output),
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", both(&output))),
        )
    };
    let (code, ended) = printed(&["--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(
        (code, &ended["outcome"], &ended["signal"], &ended["code"]),
        (143, &json!("signaled"), &json!(15), &json!(null))
    );
    let (code, ended) = printed(&["--timeout", "300ms", "--", "sh", "-c", "echo early; sleep 60"]);
    assert_eq!((code, &ended["outcome"], &ended["stdout"]), (124, &json!("timed_out"), &json!("early\n")));
}

#[test]
fn records_have_every_key() {
    let home = Home::new();
    let id = home.create(&["--name", "demo", "--label", "a=b", "--memory", "256M", "--port", "8080"]);
    let record = home.json(&["describe", "demo", "--json"]);
    for key in RECORD_KEYS.into_iter().chain(["reason"]) {
        assert!(record.get(key).is_some(), "{key}: {record}");
    }
    assert_eq!(record["id"], id);
    assert_eq!(record["name"], "demo");
    assert_eq!(record["state"], "running");
    assert_eq!(record["labels"], json!({"a": "b"}));
    assert_eq!(record["limits"]["memory"]["value"], 256 << 20);
    assert_eq!(record["ports"][0]["guest"], 8080);
    let created = record["created_at"].as_str().unwrap();
    assert!(created.len() == "2024-01-01T00:00:00.000Z".len() && created.ends_with('Z'), "{created}");
    assert_eq!(home.json(&["ls", "--json"]), json!([record]));
    // People get the same in words.
    let text = home.text(&["describe", "demo"]);
    assert!(text.contains(&id) && text.contains("256 MiB"), "{text}");
}

#[test]
fn errors_are_one_object_on_stderr() {
    let home = Home::new();
    for arguments in [
        &["describe", "--json", "no-such-sandbox"][..],
        &["exec", "--json", "no-such-sandbox", "--", "true"],
        &["run", "--json", "--", "no-such-program"],
        &["run", "--json", "-t", "no-such-template", "--", "true"],
        &["run", "--json", "--memory", "x", "--", "true"],
        &["--json", "no-such-command"],
    ] {
        let output = home.run(arguments);
        assert_ne!(code(&output), 0);
        let printed: Value =
            serde_json::from_slice(&output.stderr).unwrap_or_else(|_| panic!("{}", both(&output)));
        for key in ["kind", "operation", "resource", "message", "hint", "retry"] {
            assert!(printed["error"].get(key).is_some(), "{arguments:?}: {key}: {printed}");
        }
    }
}
