use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout};

use serde_json::{Value, json};

use crate::harness::{Home, both, code, signal, start, wait_until};

/// A watch that is armed, and what it tells.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(home: &Home, arguments: &[&str]) -> Self {
        let arguments = [&["watch", "demo", "--json"], arguments].concat();
        let mut child = start(&mut home.sandbar_in_foreground(&arguments));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut watch = Self { child, lines };
        let first = watch.next();
        assert_eq!(first["kind"], "armed", "{first}");
        watch
    }

    fn next(&mut self) -> Value {
        let Some(line) = self.lines.next() else {
            let mut why = String::new();
            self.child.stderr.as_mut().unwrap().read_to_string(&mut why).unwrap();
            panic!("the watch ended: {why}");
        };
        serde_json::from_str(&line.unwrap()).unwrap()
    }

    /// Reads until this was told.
    fn wait_for(&mut self, kind: &str, path: &str) -> Value {
        loop {
            let change = self.next();
            if change["kind"] == kind && change["path"] == path {
                return change;
            }
        }
    }

    /// The rest, and the exit code.
    fn end(mut self) -> (Vec<Value>, i32) {
        let rest = self.lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        (rest, self.child.wait().unwrap().code().expect("a code"))
    }
}

fn sh(home: &Home, script: &str) {
    home.text(&["exec", "demo", "--", "sh", "-euc", script]);
}

#[test]
fn every_kind_of_change_is_told_in_nested_new_folders() {
    let home = Home::new();
    home.create(&["--name", "demo"]);
    let mut watch = Watch::start(&home, &["/home/user", "--recursive"]);
    sh(&home, "mkdir -p a/b/c");
    watch.wait_for("create", "/home/user/a/b/c");
    sh(
        &home,
        "cd a/b/c; echo one > file; echo two >> file; chmod 600 file; mv file other; mv other ../moved; rm ../moved",
    );
    let file = "/home/user/a/b/c/file";
    watch.wait_for("create", file);
    watch.wait_for("write", file);
    watch.wait_for("chmod", file);
    let renamed = watch.wait_for("rename", file);
    assert_eq!(renamed["to"], "/home/user/a/b/c/other");
    // The other half of it is not a change of its own.
    let renamed = watch.next();
    assert_eq!(
        (&renamed["kind"], &renamed["to"]),
        (&json!("rename"), &json!("/home/user/a/b/moved")),
        "{renamed}"
    );
    watch.wait_for("remove", "/home/user/a/b/moved");
    // Out of sight, a name is gone and nobody knows the new one; into sight, it is new.
    sh(&home, "echo x > a/out; mv a/out /tmp/out; mv /tmp/out a/in");
    let out = watch.wait_for("rename", "/home/user/a/out");
    assert_eq!(out["to"], json!(null));
    watch.wait_for("create", "/home/user/a/in");
    signal(&watch.child, "INT");
    assert_eq!(watch.end().1, 130);
}

#[test]
fn ten_thousand_writes_are_told_or_overflow_is() {
    let home = Home::new();
    home.create(&["--name", "demo"]);
    let mut watch = Watch::start(&home, &["/home/user", "--recursive"]);
    let script = "for a in 0 1 2 3 4 5 6 7 8 9; do for b in 0 1 2 3 4 5 6 7 8 9; do mkdir -p t/$a/$b/deep; c=0; \
                  while [ $c -lt 100 ]; do echo x > t/$a/$b/deep/$c; c=$((c+1)); done; done; done; : > done";
    sh(&home, script);
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    loop {
        let change = watch.next();
        if change["kind"] == "overflow" {
            eprintln!("overflow was told");
            let (rest, code) = watch.end();
            assert_eq!((rest.len(), code), (0, 125));
            return;
        }
        if change["path"] == "/home/user/done" {
            break;
        }
        let kind = change["kind"].as_str().unwrap().to_owned();
        told.entry(change["path"].as_str().unwrap().to_owned()).or_default().insert(kind);
    }
    let says = |path: &str, kind: &str| told.get(path).is_some_and(|kinds| kinds.contains(kind));
    let mut lost = Vec::new();
    for folder in 0..100 {
        let folder = format!("/home/user/t/{}/{}/deep", folder / 10, folder % 10);
        if !says(&folder, "create") {
            lost.push(folder.clone());
        }
        lost.extend(
            (0..100)
                .map(|file| format!("{folder}/{file}"))
                .filter(|file| !says(file, "create") || !says(file, "write")),
        );
    }
    assert!(lost.is_empty(), "{} lost, such as {:?}", lost.len(), &lost[..lost.len().min(5)]);
}

#[test]
fn it_ends_as_it_was_asked_to() {
    let home = Home::new();
    home.create(&["--name", "demo"]);
    let watch = Watch::start(&home, &["/tmp", "--count", "2"]);
    sh(&home, "echo x > /tmp/one; echo x > /tmp/two");
    let (told, code) = watch.end();
    assert_eq!((told.len(), code), (2, 0), "{told:?}");
    let (told, code) = Watch::start(&home, &["/tmp", "--timeout", "200ms"]).end();
    assert_eq!((told.len(), code), (0, 0));
    let (_, code) = Watch::start(&home, &["/tmp", "--timeout", "200ms", "--count", "1"]).end();
    assert_eq!(code, 124);
}

#[test]
fn it_ends_with_the_folder_and_with_the_sandbox() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    for script in ["rmdir /tmp/here", "mv /tmp/here /tmp/there"] {
        sh(&home, "mkdir /tmp/here");
        let watch = Watch::start(&home, &["/tmp/here"]);
        let counting = Watch::start(&home, &["/tmp/here", "--count", "5"]);
        sh(&home, script);
        let (told, code) = watch.end();
        assert_eq!(told.last().unwrap()["kind"], "end", "{told:?}");
        assert_eq!(code, 0, "{told:?}");
        assert_eq!(counting.end().1, 1);
    }
    let watch = Watch::start(&home, &["/tmp"]);
    home.text(&["destroy", &id]);
    let (told, code) = watch.end();
    assert_eq!(
        (&told[0]["kind"], &told[0]["reason"], code),
        (&json!("end"), &json!("the sandbox is gone"), 0),
        "{told:?}"
    );
}

#[test]
fn a_reader_that_goes_away_ends_it_though_nothing_happens() {
    let home = Home::new();
    home.create(&["--name", "demo", "--", "sh", "-c", "echo up; exec sleep 600"]);
    wait_until("its words", || home.run(&["logs", "demo"]).stdout == b"up\n");
    for arguments in [&["watch", "demo", "/home/user", "--json"][..], &["logs", "demo", "-f"]] {
        let mut child = start(&mut home.sandbar(arguments));
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut String::new()).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "{arguments:?}");
        drop(stdout);
        wait_until("the end", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(141), "{arguments:?}");
    }
}

#[test]
fn what_can_not_be_watched_is_refused() {
    let home = Home::new();
    home.create(&["--name", "demo"]);
    for (arguments, expected) in [
        (&["demo", "/no/such/folder"][..], 1),
        (&["no-such-sandbox", "/tmp"], 1),
        (&["demo", "/etc/passwd"], 125),
        (&["demo", "/proc"], 125),
        (&["demo", "relative"], 2),
        (&["demo", "/tmp", "--count", "0"], 2),
        (&["demo"], 2),
    ] {
        let output = home.run(&[&["watch"], arguments].concat());
        assert_eq!(code(&output), expected, "{arguments:?}: {}", both(&output));
    }
}

#[test]
fn names_that_would_drive_a_terminal_are_escaped() {
    let home = Home::new();
    home.create(&["--name", "demo"]);
    let child = start(&mut home.sandbar(&["watch", "demo", "/home/user", "--count", "1"]));
    // Again and again, as nothing tells from outside when a watch for a person is armed.
    sh(
        &home,
        "n=0; while [ $n -lt 100 ]; do : > \"$(printf 'evil\\033[2J%s' $n)\"; n=$((n+1)); sleep 0.05; done",
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", both(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("create  /home/user/evil\\x1b[2J"), "{text}");
}
