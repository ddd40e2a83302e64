//! Connections as such: many of them, gone ones, and the server's own end.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use rustix::process::{Resource, getrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{PATIENCE, Rig, ask};
use crate::envd::Stream;

/// Connections one after another: `$SANDBAR_SOAK` says how many.
fn size(quick: usize) -> usize {
    std::env::var("SANDBAR_SOAK").ok().map_or(quick, |size| size.parse().unwrap_or(100_000).max(quick))
}

/// Resident memory of this process, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a size");
    line.split_whitespace().nth(1).and_then(|size| size.parse().ok()).expect("a number")
}

const HEALTH: &[u8] = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_at_once_are_answered() {
    let rig = Rig::memory().await;
    // Both ends are in this process, and a third of what it may open is the server's.
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(20_000);
    let count = usize::try_from(descriptors / 8).unwrap_or(2000).min(2000);
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(TcpStream::connect(rig.address).await.expect("the server listens"));
    }
    let answers = streams.into_iter().map(|mut stream| async move {
        stream.write_all(HEALTH).await.expect("sent");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200");
        stream
    });
    let all = tokio::time::timeout(PATIENCE, futures::future::join_all(answers)).await.expect("in time");
    assert_eq!(all.len(), count);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_one_after_another_leave_nothing() {
    let rig = Rig::memory().await;
    let count = size(3000);
    let round = async |of: usize| {
        for n in 0..of {
            let mut stream = TcpStream::connect(rig.address).await.expect("the server listens");
            // Some ask, some leave without a word, some in the middle of one.
            match n % 3 {
                0 => {
                    stream.write_all(HEALTH).await.expect("sent");
                    let mut answer = [0; 12];
                    stream.read_exact(&mut answer).await.expect("an answer");
                }
                1 => {}
                _ => stream.write_all(&HEALTH[..20]).await.expect("sent"),
            }
        }
    };
    round(count / 3).await;
    let before = memory();
    round(count - count / 3).await;
    let after = memory();
    assert!(after < before + (16 << 10), "{before} KiB, then {after} KiB");
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    assert!(descriptors < 3000, "{descriptors} descriptors are open");
}

/// Who sends a head byte by byte is not waited for; that takes a minute, so only where `$SANDBAR_SOAK` asks for long checks.
#[tokio::test(flavor = "multi_thread")]
async fn heads_that_never_end_are_given_up() {
    if std::env::var_os("SANDBAR_SOAK").is_none() {
        println!("skipped: SANDBAR_SOAK is not set");
        return;
    }
    let rig = Rig::memory().await;
    let slow = (0..200).map(|_| async {
        let mut stream = TcpStream::connect(rig.address).await.expect("the server listens");
        let mut bytes = HEALTH[..HEALTH.len() - 4].iter().chain(std::iter::repeat(&b'x'));
        let mut answer = [0; 256];
        loop {
            let piece: Vec<u8> = bytes.by_ref().take(1).copied().collect();
            if stream.write_all(&piece).await.is_err() {
                return;
            }
            let end = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut answer)).await;
            if matches!(end, Ok(Ok(0) | Err(_))) {
                return;
            }
        }
    });
    let all = tokio::time::timeout(PATIENCE * 3, futures::future::join_all(slow)).await;
    all.expect("all are closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_may_end_and_the_rest_is_broken_off() {
    let mut rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let backend = rig.sandbox(&sandbox.id).await;
    let run = async |script: &str| {
        let command = sandbar::Command::shell(script);
        backend.commands().run(&command).await.expect("it runs").status.is_success()
    };
    assert!(run("mkfifo -m 666 /tmp/go").await);
    let mut short = Stream::start(&rig, &sandbox, "read line < /tmp/go; echo $line").await;
    let mut long = Stream::start(&rig, &sandbox, "sleep 300").await;
    for stream in [&mut short, &mut long] {
        stream.next().await.expect("it goes on").expect("a message");
    }
    let address = rig.address;
    let stopping = tokio::spawn(async move {
        rig.stop().await;
        rig
    });
    let begun = Instant::now();
    while TcpStream::connect(address).await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it still listens");
    }
    assert!(run("echo on > /tmp/go").await);
    let (output, _) = short.finish().await;
    assert_eq!(output, b"on\n");
    long.next().await.expect_err("it is broken off");
    let rig = tokio::time::timeout(PATIENCE, stopping).await.expect("in time").expect("it stops");
    assert!(run("true").await, "the sandbox is there");
    drop(rig);
}

struct Served(Child);

impl Served {
    fn start(rig: &Rig, port: u16) -> Self {
        let helper = std::env::var_os("SANDBAR_HELPER").expect("SANDBAR_HELPER names the executable");
        let child = Command::new(helper)
            .args(["--provider", &format!("local:{}", rig.folder().join("home").display())])
            .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--default-egress", "none", "--data"])
            .arg(rig.folder().join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("the server starts"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `kill -9` of a server takes nothing with it: sandboxes, processes in them and tokens are as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_loses_nothing() {
    let mut rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let mut stream = Stream::start(&rig, &sandbox, "sleep 300").await;
    let pid = stream.next().await.unwrap().unwrap()["event"]["start"]["pid"].clone();
    drop(stream);
    rig.stop().await;
    for _ in 0..2 {
        let served = Served::start(&rig, rig.address.port());
        let begun = Instant::now();
        while TcpStream::connect(rig.address).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "it never listened");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let select = json!({"process": {"pid": pid}});
        let mut stream = Stream::open(&rig, &sandbox, "/process.Process/Connect", &select).await;
        assert_eq!(stream.next().await.unwrap().unwrap()["event"]["start"]["pid"], pid);
        drop(served);
        stream.next().await.expect_err("it ends with the server");
    }
    let served = Served::start(&rig, rig.address.port());
    let begun = Instant::now();
    while TcpStream::connect(rig.address).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "it never listened");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let key = [("x-api-key", rig.key.as_str())];
    let target = format!("/sandboxes/{}", sandbox.id);
    let found = ask(rig.address, Method::GET, &target, &key, "".into()).await;
    assert_eq!(found.status, StatusCode::OK, "{}", found.text());
    let killed = ask(rig.address, Method::DELETE, &target, &key, "".into()).await;
    assert_eq!(killed.status, StatusCode::NO_CONTENT);
    drop(served);
}
