use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::{Home, both, code, lives, signal, start, wait_until, word};

#[test]
fn a_timeout_is_124_in_time_and_leaves_nothing() {
    let home = Home::new();
    let word = word();
    let script = format!("sleep {word} & (setsid sleep {word} &) ; echo started; sleep {word}");
    // What only the first run in a data folder costs is not counted.
    home.text(&["run", "--", "true"]);
    let started = Instant::now();
    let output = home.run(&["run", "--timeout", "1s", "--", "sh", "-c", &script]);
    assert_eq!(code(&output), 124, "{}", both(&output));
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(output.stdout, b"started\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("timeout after 1s"), "{}", both(&output));
    assert!(!lives(&word));
    home.assert_empty();
}

/// A command that is asleep does not end, so that only the deadline can end the waiting.
#[test]
fn a_deadline_that_pauses_ends_the_run_and_keeps_the_sandbox() {
    let home = Home::new();
    let pausing = ["run", "--on-timeout", "pause", "--deadline", "2s"];
    let output = home.run(&[&pausing[..], &["--", "sleep", "60"]].concat());
    assert_eq!(code(&output), 2, "{}", both(&output));
    assert!(both(&output).contains("--keep"), "{}", both(&output));
    home.assert_empty();
    let word = word();
    let output = home.run(&[&pausing[..], &["--keep", "--name", "naps", "--", "sleep", &word]].concat());
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains("went to sleep"), "{}", both(&output));
    assert!(both(&output).contains("sandbar resume"), "{}", both(&output));
    assert!(lives(&word));
    home.text(&["resume", "naps"]);
    assert!(home.text(&["ps", "naps"]).contains(&word));
    home.text(&["destroy", "naps"]);
    assert!(!lives(&word));
}

#[test]
fn a_timeout_of_exec_ends_the_tree_and_not_the_sandbox() {
    let home = Home::new();
    let id = home.create(&[]);
    let word = word();
    let script = format!("(setsid sleep {word} &) ; sleep {word}");
    let output = home.run(&["exec", &id, "--timeout", "500ms", "--", "sh", "-c", &script]);
    assert_eq!(code(&output), 124, "{}", both(&output));
    wait_until("the end of the tree", || !lives(&word));
    assert_eq!(home.text(&["exec", &id, "--", "echo", "well"]), "well");
}

/// A timeout counts from the call, whether or not the sandbox ever says that the command began.
#[test]
fn a_timeout_before_the_start_is_124_too() {
    let home = Home::new();
    let id = home.create(&[]);
    let record =
        std::fs::read(home.data().join("sandboxes").join(&id).join("record.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_slice(&record).expect("JSON");
    let agent = record["private"]["agent"]["pid"].as_i64().expect("the first process").to_string();
    let tell = |signal: &str| {
        let told = std::process::Command::new("kill").args([signal, &agent]).status().expect("kill");
        assert!(told.success(), "{signal} {agent}");
    };
    tell("-STOP");
    let started = Instant::now();
    let output = home.run(&["exec", &id, "--timeout", "1s", "--", "true"]);
    tell("-CONT");
    assert_eq!(code(&output), 124, "{}", both(&output));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(home.text(&["exec", &id, "--", "echo", "well"]), "well");
}

#[test]
fn signals_of_the_command_are_128_and_more() {
    let home = Home::new();
    for (name, number) in [("KILL", 9), ("TERM", 15), ("SEGV", 11)] {
        let output = home.run(&["run", "--", "sh", "-c", &format!("kill -{name} $$")]);
        assert_eq!(code(&output), 128 + number, "{}", both(&output));
    }
}

#[test]
fn a_command_that_is_not_there_or_not_executable_has_its_own_code() {
    let home = Home::new();
    for arguments in [&["no-such-program"][..], &["/no/such/program"]] {
        let output = home.run(&[&["run", "--"], arguments].concat());
        assert_eq!(code(&output), 127, "{}", both(&output));
        assert!(!output.stderr.is_empty());
    }
    let output = home.run(&["run", "--", "/etc/passwd"]);
    assert_eq!(code(&output), 126, "{}", both(&output));
    let id = home.create(&[]);
    assert_eq!(code(&home.run(&["exec", &id, "--", "no-such-program"])), 127);
    assert_eq!(code(&home.run(&["exec", &id, "--", "/etc/passwd"])), 126);
}

#[test]
fn whoever_asks_us_to_end_ends_the_tree_and_leaves_nothing() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let home = Home::new();
        let word = word();
        let script = format!("(setsid sleep {word} &) ; sleep {word}");
        let child = start(&mut home.sandbar_in_foreground(&["run", "--", "sh", "-c", &script]));
        wait_until("the command", || lives(&word));
        signal(&child, name);
        let started = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), 128 + number, "{name}: {}", both(&output));
        assert!(started.elapsed() < Duration::from_secs(5), "{name}: {:?}", started.elapsed());
        assert!(!lives(&word), "{name}");
        home.assert_empty();
    }
}

#[test]
fn a_command_that_ignores_the_request_is_made_to_end() {
    let home = Home::new();
    let word = word();
    let script = format!("trap '' INT; echo ready; while :; do sleep {word}; done");
    let mut child = start(&mut home.sandbar_in_foreground(&["run", "--", "sh", "-c", &script]));
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    signal(&child, "INT");
    let started = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{}", both(&output));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(!lives(&word));
    home.assert_empty();
}

#[test]
fn a_command_may_answer_the_request_itself() {
    let home = Home::new();
    let script = "trap 'echo cleaned; exit 7' INT; echo ready; while :; do sleep 0.1; done";
    let mut child = start(&mut home.sandbar_in_foreground(&["run", "--", "sh", "-c", script]));
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), &output.stdout[..]), (7, &b"cleaned\n"[..]), "{}", both(&output));
}

#[test]
fn nothing_is_left_of_a_caller_that_was_killed() {
    let home = Home::new();
    let word = word();
    let mut child = start(&mut home.sandbar(&["run", "--", "sleep", &word]));
    wait_until("the command", || lives(&word));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the end of the command", || !lives(&word));
    wait_until("an empty data folder", || home.left().is_empty());
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    for name in ["INT", "TERM", "HUP"] {
        let home = Home::new();
        let prefix = ["env", "--default-signal=HUP,INT,TERM", &format!("--ignore-signal={name}")];
        let script = "echo ready; read line; echo \"$line\"";
        let mut child =
            start(home.sandbar_by(&prefix, &["run", "-i", "--", "sh", "-c", script]).stdin(Stdio::piped()));
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        signal(&child, name);
        child.stdin.as_mut().unwrap().write_all(b"alive\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((code(&output), &output.stdout[..]), (0, &b"alive\n"[..]), "{name}: {}", both(&output));
    }
}

#[test]
fn a_deadline_that_passes_is_told_as_such() {
    let home = Home::new();
    let run = |options: &[&str]| {
        let command = ["--deadline", "1s", "--out", "/etc/passwd:passwd", "--", "sleep", "60"];
        home.run(&[&["run"], options, &command].concat())
    };
    let output = run(&[]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("deadline of 1s passed") && text.contains("hint: "), "{text}");
    let output = run(&["--json"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    let printed: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(printed["error"]["kind"], "timeout", "{printed}");
    // There is nothing to keep.
    let output = run(&["--keep"]);
    assert!(!both(&output).contains("kept"), "{}", both(&output));
    // Its guard may still be at it.
    wait_until("an empty data folder", || home.left().is_empty());
    // Of somebody else's sandbox the deadline is not known.
    let id = home.create(&["--deadline", "2s"]);
    let output = home.run(&["exec", &id, "--", "sleep", "60"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains("its deadline passed, or somebody destroyed it"), "{}", both(&output));
    wait_until("an empty data folder", || home.left().is_empty());
}
