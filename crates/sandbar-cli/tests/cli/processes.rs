use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::harness::{Home, both, code, lives, signal, signal_to, start, wait_until, word};

/// What is known of the one process of a sandbox that was started from outside, once there is one.
pub(crate) fn started(home: &Home, id: &str) -> Value {
    let mut found = Value::Null;
    wait_until("a started process", || {
        let listed = home.json(&["ps", id, "--started", "--json"]);
        found = listed["processes"][0].clone();
        !found.is_null()
    });
    found
}

/// Starts a command in `demo` with a pipe to its input, and reads its first line.
fn exec(home: &Home, script: &str) -> Child {
    let arguments = ["exec", "demo", "-i", "--", "sh", "-c", script];
    let mut child = start(home.sandbar_in_foreground(&arguments).stdin(Stdio::piped()));
    let mut first = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"ready\n");
    child
}

/// Attaches with a pipe to the input; it is attached once its input comes back.
fn attach(home: &Home, pid: &str, word: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = start(home.sandbar_in_foreground(&["attach", "demo", pid, "-i"]).stdin(Stdio::piped()));
    child.stdin.as_mut().unwrap().write_all(format!("{word}\n").as_bytes()).unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line != format!("got-{word}\n") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the output ended before `{word}`");
    }
    (child, output)
}

const ECHO: &str = "echo ready; while read line; do echo got-$line; done; exit 5";

#[test]
fn a_process_outlives_its_caller_and_is_gone_back_to() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    let mut caller = exec(&home, ECHO);
    caller.kill().unwrap();
    caller.wait().unwrap();
    let process = started(&home, &id);
    assert_eq!(process["input"], "open", "{process}");
    let pid = process["pid"].to_string();
    // Two at once, and the one that is asked to go leaves the process alone.
    let (mut one, _output) = attach(&home, &pid, "one");
    let (mut other, mut others_output) = attach(&home, &pid, "two");
    // Its input stays open, so that it is the signal that makes it go.
    let _input = one.stdin.take();
    signal(&one, "INT");
    assert_eq!(one.wait().unwrap().code(), Some(130));
    other.stdin.take().unwrap().write_all(b"three\n").unwrap();
    let mut rest = String::new();
    others_output.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), other.wait().unwrap().code()), ("got-three\n", Some(5)));
    // Its end can still be had for a while.
    assert_eq!(code(&home.run(&["attach", "demo", &pid])), 5);
}

#[test]
fn a_process_outlives_the_shim_and_is_gone_back_to() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    let mut caller = exec(&home, ECHO);
    let pid = started(&home, &id)["pid"].to_string();
    let record = std::fs::read(home.data().join("sandboxes").join(&id).join("record.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    let shim = record["private"]["shim"]["pid"].as_i64().unwrap_or_else(|| panic!("{record}"));
    signal_to(i32::try_from(shim).unwrap(), "KILL");
    caller.kill().unwrap();
    caller.wait().unwrap();
    let (mut child, _) = attach(&home, &pid, "after");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn attach_tells_json_and_looks_on_unless_asked_to_type() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    let mut caller = exec(&home, "echo ready; read line; echo out; echo err >&2; exit 3");
    let pid = started(&home, &id)["pid"].to_string();
    // Its own standard input is at its end at once, which is none of the process' business.
    let looker = start(&mut home.sandbar(&["attach", "demo", &pid, "--json"]));
    let mut typist = start(home.sandbar(&["attach", "demo", &pid, "-i"]).stdin(Stdio::piped()));
    // Whichever comes first: how it ended can still be had after its end.
    typist.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = typist.wait_with_output().unwrap();
    assert_eq!((code(&output), &output.stdout[..]), (3, &b"out\n"[..]), "{}", both(&output));
    let output = looker.wait_with_output().unwrap();
    assert_eq!(code(&output), 3, "{}", both(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["outcome"], &told["code"]), (&json!("exited"), &json!(3)), "{told}");
    assert_eq!(caller.wait().unwrap().code(), Some(3));
}

#[test]
fn what_can_not_be_attached_to_is_told_apart() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    let word = word();
    let child =
        start(&mut home.sandbar(&["exec", "demo", "--", "sh", "-c", &format!("sleep {word} & wait")]));
    let inside = find(&home, &id, &word);
    let output = home.run(&["attach", "demo", &inside["pid"].to_string()]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains("was started inside"), "{}", both(&output));
    let output = home.run(&["attach", "demo", &started(&home, &id)["pid"].to_string(), "-i"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains("keeps no standard input open"), "{}", both(&output));
    let output = home.run(&["attach", "demo", "4000000"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains("sandbar ps"), "{}", both(&output));
    for bad in ["0", "-1", "x", "99999999999"] {
        assert_eq!(code(&home.run(&["attach", "demo", bad])), 2, "{bad}");
    }
    assert_eq!(code(&home.run(&["attach", "no-such-sandbox", "5"])), 125);
    home.text(&["destroy", &id]);
    assert_eq!(code(&child.wait_with_output().unwrap()), 125);
}

/// What is known of the process `sleep WORD`, once it is there and sleeps.
fn find(home: &Home, id: &str, word: &str) -> Value {
    let mut found = None;
    wait_until("the process", || {
        let listed = home.json(&["ps", id, "--json"]);
        assert_eq!(listed["complete"], true, "{listed}");
        let processes = listed["processes"].as_array().unwrap();
        found = processes.iter().find(|process| process["argv"] == json!(["sleep", word])).cloned();
        found.as_ref().is_some_and(|process| process["state"] == "waiting")
    });
    found.unwrap()
}

#[test]
fn ps_shows_all_and_who_started_it() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    assert_eq!(
        home.json(&["ps", "demo", "--json"]),
        json!({"version": 1, "complete": true, "processes": []})
    );
    let word = word();
    let script = format!("printf '' ; sleep {word} & wait");
    let mut child = start(&mut home.sandbar(&["exec", "demo", "-w", "/tmp", "--", "sh", "-c", &script]));
    let inner = find(&home, &id, &word);
    let outer = started(&home, &id);
    assert_eq!(outer["argv"], json!(["sh", "-c", script]));
    assert_eq!(
        (&outer["cwd"], &outer["started"], &outer["input"]),
        (&json!("/tmp"), &json!(true), &json!("none"))
    );
    assert_eq!((&inner["started"], &inner["input"]), (&json!(false), &json!(null)), "{inner}");
    assert_eq!(inner["parent"], outer["pid"], "{inner}");
    assert_eq!((&inner["user"], &inner["state"]), (&json!("user"), &json!("waiting")), "{inner}");
    assert!(outer["parent"].is_null(), "{outer}");
    let began: jiff::Timestamp = inner["started_at"].as_str().unwrap().parse().unwrap();
    let age = jiff::Timestamp::now().as_second() - began.as_second();
    assert!((-2..60).contains(&age), "{age}");
    // By the beginning of its id, for a person.
    let text = home.text(&["ps", &id[..id.len() - 1]]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("PID") && lines[0].ends_with("COMMAND"), "{text}");
    assert!(text.contains(&format!("sleep {word}")), "{text}");
    assert_eq!(home.text(&["ps", "demo", "--started"]).lines().count(), 2);
    home.text(&["kill", "demo", &outer["pid"].to_string(), "--signal", "KILL"]);
    child.wait().unwrap();
    assert_eq!(code(&home.run(&["ps", "no-such-sandbox"])), 1);
}

#[test]
fn a_command_line_that_would_drive_a_terminal_is_escaped() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    let word = word();
    let script = format!("exec -a \"$(printf 'evil\\033[2J\\nnext')\" sleep {word}");
    let mut child = start(&mut home.sandbar(&["exec", "demo", "--", "bash", "-c", &script]));
    wait_until("the process", || lives(&word));
    wait_until("its name", || home.text(&["ps", "demo"]).contains("evil"));
    let text = home.text(&["ps", "demo"]);
    assert!(text.contains("evil\\u{1b}[2J\\nnext"), "{text}");
    home.text(&["kill", "demo", &started(&home, &id)["pid"].to_string()]);
    child.wait().unwrap();
}

#[test]
fn kill_reaches_trees_and_single_processes() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    let (one, two) = (word(), word());
    let script = format!(
        "(setsid sleep {one} &) ; trap 'echo hup' HUP; sleep {two} & while :; do wait; sleep 0.1; done"
    );
    let mut child = start(&mut home.sandbar(&["exec", "demo", "--", "sh", "-c", &script]));
    find(&home, &id, &one);
    let second = find(&home, &id, &two);
    // One that nobody started from outside, alone.
    home.text(&["kill", "demo", &second["pid"].to_string(), "--signal", "sigkill"]);
    let runs = |word: &str| {
        let listed = home.json(&["ps", &id, "--json"]);
        let processes = listed["processes"].as_array().unwrap();
        processes.iter().any(|process| process["argv"] == json!(["sleep", word]))
    };
    wait_until("its end", || !runs(&two));
    assert!(runs(&one));
    // One that was started from outside, alone: it says so and lives on.
    let top = started(&home, &id)["pid"].to_string();
    home.text(&["kill", "demo", &top, "--alone", "--signal", "HUP"]);
    let mut output = BufReader::new(child.stdout.as_mut().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "hup\n");
    // The whole tree, with what was detached in it; what is absent does not keep it.
    let told = home.run(&["kill", "demo", &top, "4000000", "-s", "9", "--json"]);
    assert_eq!(code(&told), 1, "{}", both(&told));
    let told_json: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(
        told_json,
        json!({"version": 1, "signalled": [top.parse::<u32>().unwrap()], "absent": [4_000_000], "failed": []})
    );
    wait_until("the end of the tree", || !lives(&one));
    assert_eq!(child.wait().unwrap().code(), Some(137));
    // The tree of one that nobody started from outside.
    let script = format!("sh -c 'sleep {one} & sleep {two} & wait' & wait; echo over");
    let child = start(&mut home.sandbar(&["exec", "demo", "--", "sh", "-c", &script]));
    let parent = find(&home, &id, &one)["parent"].to_string();
    home.text(&["kill", "demo", &parent, "--signal", "KILL"]);
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), &output.stdout[..]), (0, &b"over\n"[..]), "{}", both(&output));
    assert!(!lives(&one) && !lives(&two));
}

#[test]
fn kill_tells_what_is_absent_and_what_is_nonsense() {
    let home = Home::new();
    home.create(&["--name", "demo"]);
    let own = home.run(&["kill", "demo", "1"]);
    assert_eq!(code(&own), 125, "{}", both(&own));
    assert!(both(&own).contains("process 1 is Sandbar's own and can't be signalled"), "{}", both(&own));
    for absent in [&["demo", "4000000"][..], &["no-such-sandbox", "5"]] {
        let output = home.run(&[&["kill"], absent].concat());
        assert_eq!(code(&output), 1, "{}", both(&output));
        assert!(both(&output).contains("does not exist"), "{}", both(&output));
    }
    for bad in [
        &["demo"][..],
        &["demo", "0"],
        &["demo", "-1"],
        &["demo", "5", "--signal", "NOPE"],
        &["demo", "5", "-s", "0"],
    ] {
        assert_eq!(code(&home.run(&[&["kill"], bad].concat())), 2, "{bad:?}");
    }
    assert_eq!(home.text(&["exec", "demo", "--", "echo", "well"]), "well");
}
