//! Starting commands and finding their trees.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use sandbar_engine::process::{
    Child, Event, Failure, Reach, Resource, Rlimit, Spawn, Stage, Stdin, Stdio, signal_all,
};

const LIMIT: Duration = Duration::from_secs(20);

fn shell(script: &str) -> Spawn {
    Spawn {
        programs: vec![c"/bin/sh".into()],
        argv: vec![c"sh".into(), c"-c".into(), CString::new(script).unwrap()],
        env: vec![c"PATH=/usr/bin:/bin".into()],
        ..Spawn::default()
    }
}

fn started(spawn: Spawn) -> (Child, i32) {
    let child = spawn.start().unwrap();
    match child.wait_event(LIMIT).unwrap() {
        Event::Started(pid) => {
            child.tree.set_root(pid);
            (child, pid)
        }
        other => panic!("{other:?}"),
    }
}

fn failure(spawn: Spawn) -> Failure {
    let child = spawn.start().unwrap();
    let event = child.wait_event(LIMIT).unwrap();
    assert_eq!(child.wait_event(LIMIT).unwrap(), Event::Gone);
    child.tree.reap();
    match event {
        Event::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

fn finish(child: &Child) -> i32 {
    let status = match child.wait_event(LIMIT).unwrap() {
        Event::Exited(status) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(child.wait_event(LIMIT).unwrap(), Event::Gone);
    child.tree.reap();
    status
}

fn read(descriptor: Option<OwnedFd>) -> String {
    let descriptor = descriptor.unwrap();
    rustix::io::ioctl_fionbio(&descriptor, false).unwrap();
    let mut text = String::new();
    File::from(descriptor).read_to_string(&mut text).unwrap();
    text
}

fn output(spawn: Spawn) -> String {
    let (mut child, _) = started(spawn);
    let text = read(child.stdout.take());
    assert_eq!(finish(&child), 0);
    text
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_command_has_clean_surroundings() {
    let script = "echo $$; ls -l /proc/self/fd | grep -c -- '->'; readlink /proc/self/fd/0; umask; env; \
                  grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let text = output(shell(script));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(&lines[1..4], ["4", "/dev/null", "0022"], "{text}");
    assert!(text.contains("PATH=/usr/bin:/bin") && !text.contains("CARGO"));
    assert!(
        text.contains("SigBlk:\t0000000000000000") && text.contains("SigIgn:\t0000000000000000"),
        "{text}"
    );
}

#[test]
fn statuses_are_raw() {
    for (script, status) in [("exit 0", 0), ("exit 7", 7 << 8), ("kill -KILL $$", 9)] {
        let (child, _) = started(shell(script));
        assert_eq!(finish(&child), status);
    }
}

#[test]
fn failures_say_where_and_why() {
    let with = |program: &str| Spawn { programs: vec![CString::new(program).unwrap()], ..shell("true") };
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    let plain = plain.to_str().unwrap();
    let exec = |errno| Failure { stage: Stage::Exec, errno };
    assert_eq!(failure(with("/no/such")), exec(libc::ENOENT));
    assert_eq!(failure(with(plain)), exec(libc::EACCES));
    assert_eq!(failure(with(&format!("{plain}/x"))), exec(libc::ENOTDIR));
    assert_eq!(failure(Spawn { programs: vec![], ..shell("true") }), exec(libc::ENOENT));
    let cwd = Spawn { cwd: Some(c"/no/such".into()), ..shell("true") };
    assert_eq!(failure(cwd), Failure { stage: Stage::Chdir, errno: libc::ENOENT });
    let mut several = with("/no/such");
    several.programs.push(CString::new(plain).unwrap());
    several.programs.push(c"/also/missing".into());
    assert_eq!(failure(several), exec(libc::EACCES), "as a shell reports what it found");
    assert_eq!(exec(libc::ENOENT).reason(), "no such file or directory");
}

#[test]
fn input_is_a_pipe_where_asked_for() {
    use std::io::Write;
    let (mut child, _) =
        started(Spawn { stdio: Stdio::Pipes { stdin: Stdin::Pipe }, ..shell("read a; echo got $a") });
    File::from(child.stdin.take().unwrap()).write_all(b"it\n").unwrap();
    assert_eq!(read(child.stdout.take()), "got it\n");
    finish(&child);
}

#[test]
fn further_descriptors_come_in_order() {
    let pipe = |text: &[u8]| {
        let (read, write) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut { write }, text).unwrap();
        OwnedFd::from(read)
    };
    let spawn = Spawn { more_descriptors: vec![pipe(b"three"), pipe(b"four")], ..shell("cat <&4; cat <&3") };
    assert_eq!(output(spawn), "fourthree");
}

#[test]
fn a_terminal_is_the_controlling_one() {
    let (mut child, _) = started(Spawn {
        stdio: Stdio::Pty { cols: 70, rows: 20 },
        ..shell("stty size; echo from-tty >/dev/tty")
    });
    let master = child.pty.take().unwrap();
    rustix::io::ioctl_fionbio(&master, false).unwrap();
    let mut text = Vec::new();
    // The end of a terminal is an I/O error.
    let _ = File::from(master).read_to_end(&mut text);
    assert_eq!(String::from_utf8_lossy(&text), "20 70\r\nfrom-tty\r\n");
    assert_eq!(finish(&child), 0);
}

#[test]
fn limits_are_set() {
    let rlimits = vec![Rlimit { resource: Resource::Nofile, soft: 33, hard: 44 }];
    assert_eq!(output(Spawn { rlimits, ..shell("ulimit -n; ulimit -Hn") }), "33\n44\n");
}

fn descendants(pid: i32) -> usize {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().map(|child| 1 + descendants(child.parse().unwrap())).sum()
}

#[test]
fn a_tree_is_found_whole_and_outlives_its_root() {
    let script = "(setsid sh -c 'sleep 4901 & exec sleep 4902' &) ; sleep 4903 & exit 5";
    let (child, pid) = started(shell(script));
    assert_eq!(child.wait_event(LIMIT).unwrap(), Event::Exited(5 << 8));
    assert!(child.tree.is_alive(), "descendants live on");
    let stub = child.tree.stub();
    eventually("three sleeps are below the stub", || descendants(stub) == 3);
    assert_eq!(
        child.tree.signal(libc::SIGTERM, Reach::Session).unwrap(),
        1,
        "one is in the session of {pid}"
    );
    eventually("two are left", || descendants(stub) == 2);
    assert_eq!(child.tree.signal(libc::SIGKILL, Reach::Everything).unwrap(), 2);
    assert_eq!(child.wait_event(LIMIT).unwrap(), Event::Gone);
    child.tree.reap();
    assert!(!child.tree.is_alive());
    assert_eq!(child.tree.signal(libc::SIGKILL, Reach::Everything).unwrap(), 0);
}

#[test]
fn a_fork_bomb_in_one_tree_is_ended() {
    let script = "f() { while :; do (sleep 0.01; :) & (sleep 0.02 & ) ; sleep 0.005; done; }; f & f & wait";
    let (child, _) = started(shell(script));
    let begin = Instant::now();
    eventually("it grows", || begin.elapsed() > Duration::from_millis(200));
    child.tree.signal(libc::SIGKILL, Reach::Everything).unwrap();
    let end = Instant::now() + LIMIT;
    while child.wait_event(LIMIT).unwrap() != Event::Gone {
        assert!(Instant::now() < end);
    }
    child.tree.reap();
}

/// Set where this is the first process of a namespace, and `signal_all` reaches what the test started and nothing else.
const FIRST: &str = "SANDBAR_TEST_FIRST";

#[test]
fn nothing_goes_on_because_another_died_first() {
    const NAME: &str = "nothing_goes_on_because_another_died_first";
    if std::env::var_os(FIRST).is_none() {
        let output = std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", NAME])
            .env(FIRST, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    for round in 0..20 {
        // The shell says so when the first of its many children dies.
        let script = "for i in $(seq 200); do sleep 60 & done; echo ready; wait -n; echo went on";
        let bash = Spawn { programs: vec![c"/bin/bash".into()], ..shell(script) };
        let (mut child, _) = started(bash);
        let mut out = File::from(child.stdout.take().unwrap());
        rustix::io::ioctl_fionbio(&out, false).unwrap();
        let mut first = [0; 6];
        out.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"ready\n");
        let reached = signal_all(libc::SIGKILL, &[child.tree.stub()]).unwrap();
        assert!(reached > 200, "{reached}");
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "round {round}");
        assert_eq!(finish(&child), libc::SIGKILL);
    }
}

#[test]
fn a_stub_keeps_nothing_open() {
    let (mut child, _) = started(shell("exec sleep 4911"));
    let stub = child.tree.stub();
    if rustix::process::geteuid().is_root() {
        eventually("one descriptor is left", || {
            std::fs::read_dir(format!("/proc/{stub}/fd")).unwrap().count() == 1
        });
    } else {
        assert!(std::fs::read_dir(format!("/proc/{stub}/fd")).is_err(), "a stub is not dumpable");
    }
    child.tree.signal(libc::SIGKILL, Reach::Everything).unwrap();
    assert_eq!(read(child.stdout.take()), "", "the pipe ends with the program");
    finish(&child);
}
