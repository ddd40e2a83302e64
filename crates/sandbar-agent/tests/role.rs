//! The agent as a process of its own, started as the engine starts it.

mod support;

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use sandbar_engine::process::Event;
use support::program::{As, Started};
use support::{eventually, prepare};

/// Most private memory of an idle agent, in KiB. Debug builds are larger in every way; what is shipped is measured by
/// the benchmark.
const IDLE_KIB: u64 = 8 << 10;

fn health(folder: &Path) -> String {
    let mut stream = UnixStream::connect(folder.join("agent.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_answers_hides_and_stays_small() {
    let started = Started::new(As::Tests, |_| {});
    let begin = Instant::now();
    assert!(health(started.agent.folder.path()).starts_with("HTTP/1.1 204"));
    eprintln!("first answer {:?} after exec", begin.elapsed());
    let proc = |name: &str| Path::new("/proc").join(started.pid.to_string()).join(name);
    let status = std::fs::read_to_string(proc("status")).unwrap();
    assert!(status.contains("\nThreads:\t1\n"), "{status}");
    assert_eq!(std::fs::read_to_string(proc("comm")).unwrap(), "sandbar-agent\n");
    if !rustix::process::geteuid().is_root() {
        assert!(std::fs::read_dir(proc("fd")).is_err(), "not dumpable: its descriptors are out of reach");
        return;
    }
    assert_eq!(std::fs::metadata(proc("environ")).unwrap().uid(), 0);
    let private = || {
        let rollup = std::fs::read_to_string(proc("smaps_rollup")).unwrap();
        let kib = |line: &str| line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        rollup.lines().filter(|line| line.starts_with("Private_")).map(kib).sum::<u64>()
    };
    eprintln!("private memory when idle: {} KiB", private());
    assert!(private() <= IDLE_KIB, "{} KiB", private());
    for number in std::fs::read_dir(proc("fd")).unwrap() {
        let link = std::fs::read_link(number.unwrap().path()).unwrap();
        let link = link.to_string_lossy();
        let known = ["/dev/null", "pipe:", "socket:", "anon_inode:", "/proc/"];
        let own = link.ends_with("/oom_score_adj") || !link.starts_with("/proc/");
        assert!(own && known.iter().any(|known| link.starts_with(known)), "unexpected descriptor: {link}");
    }
}

#[test]
fn a_configuration_it_does_not_know_is_refused() {
    for bad in [r#"{"version":99}"#, "nonsense", ""] {
        let (folder, _, listeners) = prepare(|_| {});
        let started = Started::with_text(As::Tests, bad.as_bytes(), folder, listeners);
        let event = started.child.wait_event(Duration::from_secs(10)).unwrap();
        assert_eq!(event, Event::Exited(1 << 8));
        let mut log = String::new();
        let stderr = started.child.stderr.as_ref().unwrap().try_clone().unwrap();
        eventually("it says why", || {
            std::fs::File::from(stderr.try_clone().unwrap()).read_to_string(&mut log).is_ok()
        });
        assert!(log.starts_with("sandbar-agent: ") && log.contains("configuration"), "{log}");
    }
}

#[test]
fn children_leave_no_zombies() {
    let started = Started::new(As::Tests, |_| {});
    let folder = started.agent.folder.path().to_owned();
    for _ in 0..50 {
        let body = sandbar_wire::envd::message_frame(&support::shell("(true &); true"));
        let mut stream = UnixStream::connect(folder.join("agent.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let head = format!(
            "POST /process.Process/Start HTTP/1.1\r\nhost: x\r\ncontent-type: application/connect+json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains("exit status 0"), "{answer}");
    }
    eventually("no child is left", || {
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", started.pid))
            .unwrap()
            .trim()
            .is_empty()
    });
}
