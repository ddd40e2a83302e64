//! The runner: what it passes on, and what it leaves.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use sandbar_rig::{FOLDER, inside};

/// For what the kernel does at the end of a namespace.
const SOON: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

fn rig(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sandbar-rig")).args(arguments).output().unwrap()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {SOON:?}");
        std::thread::sleep(LOOK);
    }
}

/// The processes that this one can see and that have `word` among their arguments or are in the network namespace `network`.
fn processes(word: &str, network: &str) -> Vec<PathBuf> {
    let folders = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let concerned = |folder: &PathBuf| {
        let line = fs::read(folder.join("cmdline")).unwrap_or_default();
        let has_word = line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes());
        has_word || fs::read_link(folder.join("ns/net")).is_ok_and(|link| link == Path::new(network))
    };
    folders.filter(concerned).collect()
}

#[test]
fn codes_are_passed_on() {
    assert_eq!(rig(&["run", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(rig(&["run", "true"]).status.code(), Some(0));
    assert_eq!(rig(&["run", "--", "sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    assert_eq!(rig(&["run", "--", "no-such-program-at-all"]).status.code(), Some(127));
    assert_eq!(rig(&["run"]).status.code(), Some(2));
    assert_eq!(rig(&["walk", "true"]).status.code(), Some(2));
}

#[test]
fn the_command_has_no_more_than_its_caller() {
    let read = "grep -E '^(Cap(Inh|Prm|Eff|Amb)|Uid|Gid):' /proc/self/status; ls /proc/self/fd | wc -l";
    let within = rig(&["run", "--", "sh", "-c", read]);
    let without = Command::new("sh").args(["-c", read]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&within.stdout), String::from_utf8_lossy(&without.stdout));
}

#[test]
fn a_killed_runner_leaves_nothing() {
    // A duration that no other process sleeps for.
    let word = format!("98765.{}", std::process::id());
    let script =
        format!("setsid sleep {word} & echo ${FOLDER}; readlink /proc/self/ns/net; exec sleep {word}");
    let mut runner = Command::new(env!("CARGO_BIN_EXE_sandbar-rig"))
        .args(["run", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(runner.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (folder, network) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(Path::new(&folder).join("ctl").exists());
    // Two that sleep, the first process of the namespace, and the runner; the services are in a namespace of their own.
    eventually("all run", || processes(&word, &network).len() >= 4);
    runner.kill().unwrap();
    runner.wait().unwrap();
    eventually("all are gone", || processes(&word, &network).is_empty() && processes(&folder, "").is_empty());
    eventually("the folder is gone", || !Path::new(&folder).exists());
}

#[test]
fn a_tied_rig_ends_with_its_caller() {
    let word = format!("98767.{}", std::process::id());
    let rig = env!("CARGO_BIN_EXE_sandbar-rig");
    // The second command keeps the shell from becoming the first.
    let script = format!("{rig} run --tied -- sh -c 'echo ${FOLDER}; exec sleep {word}'; true");
    let mut shell = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let folder = BufReader::new(shell.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    eventually("it runs", || !processes(&word, "").is_empty());
    shell.kill().unwrap();
    shell.wait().unwrap();
    eventually("all are gone", || processes(&word, "").is_empty() && processes(&folder, "").is_empty());
    eventually("the folder is gone", || !Path::new(&folder).exists());
}

#[test]
fn an_ended_command_leaves_nothing() {
    let word = format!("98766.{}", std::process::id());
    let script = format!("setsid sleep {word} >/dev/null 2>&1 & echo ${FOLDER}");
    let output = rig(&["run", "--", "sh", "-c", &script]);
    let folder = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !folder.is_empty());
    assert!(processes(&word, "").is_empty() && processes(folder.trim(), "").is_empty());
    assert!(!Path::new(folder.trim()).exists());
}

#[test]
#[ignore = "it fails on purpose, for the test below"]
fn fails_on_purpose() {
    inside("fails_on_purpose", || panic!("as it should"));
}

#[test]
#[ignore = "it names another test on purpose, for the test below"]
fn names_another() {
    inside("no_such_test", || ());
}

#[test]
fn a_test_that_fails_in_a_rig_fails() {
    let again = |name: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--ignored", "--nocapture"]).env_remove(FOLDER);
        let output = command.output().unwrap();
        assert!(!output.status.success(), "`{name}` passed");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let text = again("fails_on_purpose");
    assert!(text.contains("as it should"), "its own words are shown:\n{text}");
    let text = again("names_another");
    assert!(text.contains("is that its whole name?"), "{text}");
}
