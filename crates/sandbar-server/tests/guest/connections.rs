//! Connections as such: many of them, gone ones, and the server's own end.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{PATIENCE, Rig, ask};
use crate::envd::Stream;

/// Connections one after another: `$SANDBAR_SOAK` says how many.
fn size(quick: usize) -> usize {
    std::env::var("SANDBAR_SOAK").ok().map_or(quick, |size| size.parse().unwrap_or(100_000).max(quick))
}

/// Memory that a connection may leave, in bytes, in the best of some rounds. What is lost is lost in each; what the allocator keeps for the next is not.
const LEFT_EACH: usize = 512;

/// Rounds until memory is to be flat.
const ROUNDS: usize = 10;

const HEALTH: &[u8] = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A server in a process of its own, so that what it takes is told from what tests take.
struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    /// Over the local backend in `folder`; it listens when this returns. Somebody else's connection may have the port for a moment.
    fn start(folder: &Path, port: u16) -> Self {
        let begun = Instant::now();
        loop {
            if let Some(served) = Self::try_start(folder, port) {
                return served;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn try_start(folder: &Path, port: u16) -> Option<Self> {
        let helper = std::env::var_os("SANDBAR_HELPER").expect("SANDBAR_HELPER names the executable");
        let mut child = Command::new(helper)
            .args(["--provider", &format!("local:{}", folder.join("home").display())])
            .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--default-egress", "none"])
            .args(["--code-interpreter", "off", "--data"])
            .arg(folder.join("data"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let address = lines.map_while(Result::ok).find_map(|line| {
            line.strip_prefix("export E2B_API_URL=http://")
                .map(|address| address.parse().expect("an address"))
        });
        if address.is_none() {
            child.wait().expect("it ends");
        }
        Some(Self { child, address: address? })
    }

    /// Resident memory, in KiB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a status");
        let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a size");
        line.split_whitespace().nth(1).and_then(|size| size.parse().ok()).expect("a number")
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("descriptors").count()
    }

    /// Waits until connections that are gone have let go of what they had.
    async fn has_descriptors(&self, most: usize) {
        let begun = Instant::now();
        while self.descriptors() > most {
            assert!(begun.elapsed() < PATIENCE, "{} descriptors are open", self.descriptors());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Runs rounds of `count` connections until one leaves nothing; each is to give back its descriptors.
    async fn stays_flat(&self, count: usize, round: impl AsyncFn()) {
        let descriptors = self.descriptors();
        let mut sizes = vec![self.memory()];
        for _ in 0..ROUNDS {
            round().await;
            self.has_descriptors(descriptors).await;
            let (before, after) = (sizes[sizes.len() - 1], self.memory());
            sizes.push(after);
            if after <= before + ((count * LEFT_EACH) >> 10) as u64 {
                return;
            }
        }
        panic!("{count} connections a round, and KiB after each: {sizes:?}");
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("the server listens")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks and reads the answer's first line.
async fn healthy(stream: &mut TcpStream) {
    stream.write_all(HEALTH).await.expect("sent");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_at_once_are_answered() {
    // As many as this process may open for its ends.
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(8192, |maximum| maximum.min(8192));
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    let mine = getrlimit(Resource::Nofile).current.unwrap_or(8192);
    let count = usize::try_from(mine / 3).unwrap_or(2000).min(2000);
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(folder.path(), 0);
    healthy(&mut served.connect().await).await;
    served
        .stays_flat(count, async || {
            let mut streams = Vec::new();
            for _ in 0..count {
                streams.push(served.connect().await);
            }
            let answers = streams.into_iter().map(|mut stream| async move {
                healthy(&mut stream).await;
                stream
            });
            let all =
                tokio::time::timeout(PATIENCE, futures::future::join_all(answers)).await.expect("in time");
            assert_eq!(all.len(), count);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_one_after_another_leave_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(folder.path(), 0);
    let count = size(3000) / 3;
    healthy(&mut served.connect().await).await;
    served
        .stays_flat(count, async || {
            for n in 0..count {
                let mut stream = served.connect().await;
                // Some ask, some leave without a word, some in the middle of one.
                match n % 3 {
                    0 => healthy(&mut stream).await,
                    1 => {}
                    _ => stream.write_all(&HEALTH[..20]).await.expect("sent"),
                }
            }
        })
        .await;
}

/// Who sends a head byte by byte, or nothing at all, is not waited for, and nobody waits because of them.
#[tokio::test(flavor = "multi_thread")]
async fn heads_that_never_end_are_given_up() {
    let rig = Rig::memory_with(|config| config.head_limit = Duration::from_secs(2)).await;
    let slow = (0..100).map(|number| async move {
        let mut stream = TcpStream::connect(rig.address).await.expect("the server listens");
        let mut bytes = HEALTH[..HEALTH.len() - 4].iter().chain(std::iter::repeat(&b'x'));
        let mut answer = [0; 256];
        loop {
            if number % 4 != 0 {
                let piece: Vec<u8> = bytes.by_ref().take(1).copied().collect();
                if stream.write_all(&piece).await.is_err() {
                    return;
                }
            }
            let end = tokio::time::timeout(Duration::from_millis(100), stream.read(&mut answer)).await;
            if matches!(end, Ok(Ok(0) | Err(_))) {
                return;
            }
        }
    });
    let all = tokio::time::timeout(PATIENCE, futures::future::join_all(slow));
    let good = async {
        let mut stream = TcpStream::connect(rig.address).await.expect("the server listens");
        healthy(&mut stream).await;
    };
    let (all, ()) = tokio::join!(all, good);
    all.expect("all are closed");
}

/// Who is refused while he sends gets his answer, and his connection is good for more: SDKs keep theirs, and can't tell one that is closed under them from a
/// server that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_does_not_close_the_connection_under_its_client() {
    let rig = Rig::memory().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let mut stream = TcpStream::connect(rig.address).await.expect("the server listens");
    let unknown = "e2b-sandbox-id: snosuchsandbox\r\ne2b-sandbox-port: 49983\r\n".to_owned();
    let tokenless = format!("e2b-sandbox-id: {}\r\ne2b-sandbox-port: 49983\r\n", sandbox.id);
    let (short, long) = (vec![b'x'; 10], vec![b'x'; 3 << 20]);
    for round in 0..40 {
        for (path, headers, status) in [
            ("/files?path=a", unknown.as_str(), "502"),
            ("/process.Process/List", &tokenless, "401"),
            ("/v2/sandboxes", "x-api-key: e2b_wrong\r\n", "401"),
            ("/uploads/0000", "", "403"),
            ("/no/such/endpoint", "", "404"),
        ] {
            let body = if round % 8 == 7 { &long } else { &short };
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {}\r\n\r\n",
                body.len()
            );
            let head = if path.starts_with("/uploads") { head.replace("POST", "PUT") } else { head };
            // In two pieces, so that the answer may come before the second.
            stream.write_all(head.as_bytes()).await.expect("the head is taken");
            tokio::task::yield_now().await;
            stream.write_all(body).await.unwrap_or_else(|error| panic!("{path} in round {round}: {error}"));
            let answer = answer(&mut stream).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} in round {round}: {answer}");
        }
    }
}

/// One answer of known length.
async fn answer(stream: &mut TcpStream) -> String {
    let reading = async {
        let mut text = String::new();
        let mut byte = [0];
        while !text.ends_with("\r\n\r\n") {
            stream.read_exact(&mut byte).await.expect("an answer");
            text.push(char::from(byte[0]));
        }
        let length =
            text.to_ascii_lowercase().split("content-length: ").nth(1).map(|rest| {
                rest.lines().next().and_then(|length| length.trim().parse().ok()).expect("a length")
            });
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await.expect("a body");
        text + &String::from_utf8_lossy(&body)
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("in time")
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
        let served = Served::start(rig.folder(), rig.address.port());
        let select = json!({"process": {"pid": pid}});
        let mut stream = Stream::open(&rig, &sandbox, "/process.Process/Connect", &select).await;
        assert_eq!(stream.next().await.unwrap().unwrap()["event"]["start"]["pid"], pid);
        drop(served);
        stream.next().await.expect_err("it ends with the server");
    }
    let served = Served::start(rig.folder(), rig.address.port());
    let key = [("x-api-key", rig.key.as_str())];
    let target = format!("/sandboxes/{}", sandbox.id);
    let found = ask(rig.address, Method::GET, &target, &key, "".into()).await;
    assert_eq!(found.status, StatusCode::OK, "{}", found.text());
    let killed = ask(rig.address, Method::DELETE, &target, &key, "".into()).await;
    assert_eq!(killed.status, StatusCode::NO_CONTENT);
    drop(served);
}
