//! The audit record and the trace, from outside.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{Home, both, code, start, wait_until};

fn file(home: &Home) -> PathBuf {
    home.current().join("audit.jsonl")
}

fn events(home: &Home) -> Vec<Value> {
    let text = std::fs::read_to_string(file(home)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("an event a line")).collect()
}

fn ops(events: &[Value], phase: &str) -> Vec<String> {
    let matching = events.iter().filter(|event| event["phase"] == phase);
    matching.map(|event| event["op"].as_str().expect("an operation").to_owned()).collect()
}

fn find<'a>(events: &'a [Value], op: &str, phase: &str) -> &'a Value {
    events.iter().find(|event| event["op"] == op && event["phase"] == phase).expect("an event")
}

#[test]
fn a_run_is_recorded_from_its_creation_to_its_end_without_secrets() {
    let home = Home::new();
    let mut command =
        home.sandbar(&["run", "--audit", "audit.jsonl", "-e", "TOKEN=canary", "--", "sh", "-c"]);
    command.args(["cat; exit 5", "a\nb\x1b[2J"]).env("SANDBAR_ACTOR", "ci");
    let output = command.output().expect("it starts");
    assert_eq!(code(&output), 5, "{}", both(&output));
    let seen = events(&home);
    assert_eq!(ops(&seen, "begin"), ["create", "spawn", "destroy", "ended"]);
    assert_eq!(ops(&seen, "end"), ["create", "spawn", "ended", "destroy"]);
    let spawned = find(&seen, "spawn", "end");
    assert_eq!((&spawned["detail"]["code"], &spawned["outcome"]), (&5.into(), &"ok".into()));
    let begun = find(&seen, "spawn", "begin");
    assert_eq!(begun["detail"]["argv"], serde_json::json!(["sh", "-c", "cat; exit 5", "a\nb\x1b[2J"]));
    assert_eq!(begun["detail"]["env"], serde_json::json!(["TOKEN"]));
    assert_eq!(
        (&find(&seen, "ended", "end")["detail"]["reason"], &begun["actor"]["name"]),
        (&"destroyed".into(), &"ci".into())
    );
    // One invocation is one trace.
    assert!(seen.iter().all(|event| event["trace"] == begun["trace"] && event["sandbox"] != ""));
    let text = std::fs::read_to_string(file(&home)).expect("text");
    assert!(!text.contains("canary") && !text.contains('\x1b'), "{text}");

    let shown = home.text(&["audit", "audit.jsonl"]);
    assert_eq!(shown.lines().count(), seen.len());
    assert!(
        shown.contains(" spawn ok ") && shown.contains("code=5") && shown.contains("actor=ci"),
        "{shown}"
    );
    assert!(!shown.contains('\x1b'));
    let json = home.text(&["audit", "audit.jsonl", "--json"]);
    let again: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(again, seen);
    let id = spawned["sandbox"].as_str().expect("an id");
    assert_eq!(
        home.text(&["audit", "audit.jsonl", "--id", &id[..id.len() - 2]]).lines().count(),
        seen.len() - 1
    );
    assert_eq!(home.text(&["audit", "audit.jsonl", "--id", "nosuchid"]), "");
}

#[test]
fn what_can_not_be_recorded_is_not_done_unless_that_is_good_enough() {
    let home = Home::new();
    std::fs::create_dir(file(&home)).expect("a folder in the way");
    let output = home.run(&["run", "--audit", "audit.jsonl", "--", "touch", "/tmp/x"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains("audit.jsonl` can't be written"), "{}", both(&output));
    assert!(!home.data().join("sandboxes").exists());
    let output = home.run(&["run", "--audit", "audit.jsonl,best-effort", "--", "echo", "done"]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    assert!(
        output.stdout == b"done\n" && both(&output).contains("6 events could not be written"),
        "{}",
        both(&output)
    );
    let output = home.run(&["ls", "--audit", "a,often"]);
    assert_eq!(code(&output), 2, "{}", both(&output));
    let output = home.sandbar(&["ls"]).env("SANDBAR_AUDIT", "a,often").output().expect("it starts");
    assert_eq!(code(&output), 2, "{}", both(&output));
    assert!(both(&output).contains("SANDBAR_AUDIT"), "{}", both(&output));
}

#[test]
fn a_caller_that_is_killed_is_told_of_by_who_guards_its_sandbox() {
    let home = Home::new();
    let mut child = start(&mut home.sandbar(&["run", "--audit", "audit.jsonl", "--", "sleep", "600"]));
    wait_until("it runs", || ops(&events(&home), "begin").contains(&"spawn".to_owned()));
    child.kill().expect("killed");
    child.wait().expect("an end");
    wait_until("the end is recorded", || ops(&events(&home), "end").contains(&"ended".to_owned()));
    let seen = events(&home);
    let end = find(&seen, "ended", "end");
    assert_eq!((&end["detail"]["reason"], &end["actor"]["role"]), (&"owner_gone".into(), &"guard".into()));
    // Of the command nobody knows how it ended, and nobody says so.
    assert!(!ops(&seen, "end").contains(&"spawn".to_owned()));
}

#[test]
fn many_invocations_share_a_record() {
    let home = Home::new();
    let id = home.create(&["--audit", "audit.jsonl"]);
    let children: Vec<_> = (0..6)
        .map(|n| {
            let mut command = home.sandbar(&["exec", &id, "--", "echo", &n.to_string()]);
            start(command.env("SANDBAR_AUDIT", file(&home)))
        })
        .collect();
    for child in children {
        assert!(child.wait_with_output().expect("an end").status.success());
    }
    let seen = events(&home);
    assert_eq!(ops(&seen, "begin").iter().filter(|op| *op == "spawn").count(), 6);
    assert_eq!(ops(&seen, "end").iter().filter(|op| *op == "spawn").count(), 6);
    let mut traces: Vec<_> = seen.iter().map(|event| event["trace"].to_string()).collect();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 7, "each invocation is a trace of its own");
}

#[test]
fn a_trace_is_taken_and_passed_on() {
    let home = Home::new();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    let show = ["--", "sh", "-c", "echo $TRACEPARENT $TRACESTATE"];
    let inside = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = home.sandbar(&[&["run"], arguments, &show].concat());
        let output = command.envs(environment.iter().copied()).output().expect("it starts");
        assert_eq!(code(&output), 0, "{}", both(&output));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    let seen = inside(&[], &[("TRACEPARENT", &parent), ("TRACESTATE", "a=b")]);
    assert!(seen.starts_with(&format!("00-{trace}-")) && seen.ends_with("-01 a=b"), "{seen}");
    assert!(!seen.contains("b7ad6b7169203331"), "it is a span of its own");
    let typed = inside(&["--traceparent", &parent], &[("TRACEPARENT", "nonsense"), ("TRACESTATE", "a=b")]);
    assert!(typed.starts_with(&format!("00-{trace}-")) && !typed.contains("a=b"), "{typed}");
    // Not valid: a new trace, and no error.
    let fresh = inside(&[], &[("TRACEPARENT", "00-nonsense")]);
    assert!(fresh.len() == 55 && !fresh.contains(trace), "{fresh}");
    assert_eq!(inside(&["-e", "TRACEPARENT=mine"], &[("TRACEPARENT", &parent)]), "mine");
    assert_eq!(inside(&[], &[]), "", "nobody asked for a trace");
}

#[test]
fn a_record_can_be_followed_and_torn_lines_are_told() {
    let home = Home::new();
    let mut follower = start(&mut home.sandbar(&["audit", "--follow", "--json", "audit.jsonl"]));
    let mut lines = BufReader::new(follower.stdout.take().expect("a pipe")).lines();
    let id = home.create(&["--audit", "audit.jsonl"]);
    let first: Value = serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON");
    assert_eq!((&first["op"], &first["phase"]), (&"create".into(), &"begin".into()));
    let second: Value = serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON");
    assert_eq!(second["sandbox"], id);
    // Nothing more happens, and nobody reads any more.
    drop(lines);
    wait_until("its end", || follower.try_wait().expect("a look").is_some());
    assert_eq!(follower.wait().expect("an end").code(), Some(141));
    let mut whole = std::fs::read(file(&home)).expect("bytes");
    whole.extend_from_slice(br#"{"v":1,"at""#);
    std::fs::write(file(&home), whole).expect("written");
    let output = home.run(&["audit", "audit.jsonl"]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    assert!(both(&output).contains("1 lines are torn"), "{}", both(&output));
    let output = home.run(&["audit", "no-such-file"]);
    assert_eq!(code(&output), 2, "{}", both(&output));
    assert!(both(&output).contains("hint:"), "{}", both(&output));
}
