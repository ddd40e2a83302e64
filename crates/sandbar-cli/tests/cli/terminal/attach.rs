//! `attach` to what has a terminal.

use std::io::{BufRead, BufReader};

use crate::harness::{Home, both, code, pid_of, signal_to, start, word};
use crate::processes::started;
use crate::terminal::pane::Pane;

/// A shell in a sandbox whose caller was killed; its number, and the screen that it left.
fn orphaned(home: &Home) -> Option<(String, u64)> {
    let pane = Pane::open(home)?;
    let id = home.create(&["--name", "demo"]);
    pane.enters(&format!("\"$sandbar\" exec {id} -T -- sh"));
    pane.wait_for_line("$");
    pane.enters("PS1='inner> '; kept=safe; echo ready");
    pane.wait_for_line("ready");
    signal_to(pid_of(&["exec", &id, "-T", "--", "sh"]), "KILL");
    let pid = started(home, &id)["pid"].as_u64().expect("a number");
    Some((id, pid))
}

#[test]
fn a_shell_outlives_its_caller_and_is_gone_back_to() {
    let home = Home::new();
    let Some((_, pid)) = orphaned(&home) else { return };
    let pane = Pane::open(&home).expect("a second one");
    pane.enters(&format!("\"$sandbar\" attach demo {pid}; echo code=$?"));
    pane.enters("");
    pane.wait_for_line("inner>");
    // It gets another size first, to make it draw.
    pane.enters("until [ \"$(stty size)\" = '30 100' ]; do sleep 0.05; done; echo was-$kept; exit 6");
    pane.wait_for_line("was-safe");
    pane.wait_for("code=6");
}

#[test]
fn two_see_and_type_the_same() {
    let home = Home::new();
    let Some((_, pid)) = orphaned(&home) else { return };
    let (one, other) = (Pane::open(&home).expect("one"), Pane::open(&home).expect("another"));
    for pane in [&one, &other] {
        pane.enters(&format!("\"$sandbar\" attach demo {pid}; echo code=$?"));
        pane.enters("");
        pane.wait_for_line("inner>");
    }
    one.enters("echo from-$((0+1))");
    one.wait_for_line("from-1");
    other.wait_for_line("from-1");
    other.enters("echo from-$((1+1)); exit 7");
    for pane in [&one, &other] {
        pane.wait_for_line("from-2");
        pane.wait_for("code=7");
    }
}

#[test]
fn without_a_terminal_one_can_only_look_on() {
    let home = Home::new();
    let Some((_, pid)) = orphaned(&home) else { return };
    let pid = pid.to_string();
    let output = home.run(&["attach", "demo", &pid]);
    assert_eq!(code(&output), 2, "{}", both(&output));
    assert!(both(&output).contains("--no-stdin"), "{}", both(&output));
    let mut looker = start(&mut home.sandbar(&["attach", "demo", &pid, "--no-stdin"]));
    let pane = Pane::open(&home).expect("a second one");
    pane.enters(&format!("\"$sandbar\" attach demo {pid}; echo code=$?"));
    pane.enters("");
    pane.wait_for_line("inner>");
    let word = word();
    pane.enters(&format!("until [ -e /tmp/go ]; do echo {word}; sleep 0.1; done; exit 9"));
    let mut seen = BufReader::new(looker.stdout.take().unwrap());
    let mut line = String::new();
    while line != format!("{word}\r\n") {
        line.clear();
        assert_ne!(seen.read_line(&mut line).unwrap(), 0, "the output ended");
    }
    home.text(&["exec", "demo", "--", "touch", "/tmp/go"]);
    std::io::copy(&mut seen, &mut std::io::sink()).unwrap();
    assert_eq!(looker.wait().unwrap().code(), Some(9));
    pane.wait_for("code=9");
}
