//! Connections of nobody's good will: one after another, at once, silent, and slow.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use http::{Method, StatusCode};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::common::PATIENCE;
use crate::look::{Footprint, eventually};
use crate::served::Served;
use crate::soak;

/// Connections one after another in the short run; `SANDBAR_SOAK` is how many there are in a long one.
const CONNECTIONS: u64 = 1500;
/// Connections at once, and in the short run.
const AT_ONCE: usize = 2000;
const FEW_AT_ONCE: usize = 400;
/// The server gives a head this long; more than that and it has closed.
const HEAD_LIMIT: Duration = Duration::from_secs(60);
/// Between two bytes of who is slow.
const SLOW: Duration = Duration::from_secs(5);
/// How much more memory may be in use after hostility, in KiB: pages that the allocator keeps.
const MORE: u64 = 8 << 10;

const HEALTH: &[u8] = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// What is sent, in turns: all, nothing, a part, what is no HTTP, a lie about a body, and a request for nobody's sandbox.
const SENT: [&[u8]; 7] = [
    HEALTH,
    b"",
    b"GET /health HTTP/1.1\r\nho",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"POST /v2/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10737418240\r\n\r\n{",
    b"POST /v2/sandboxes HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    b"GET / HTTP/1.1\r\nhost: localhost\r\ne2b-sandbox-id: inobodys\r\ne2b-sandbox-port: 49983\r\n\r\n",
];

#[tokio::test(flavor = "multi_thread")]
async fn one_after_another_and_at_once_they_leave_nothing() {
    let mut served = Served::start().await;
    let made = served.api.create().await.expect("a sandbox");
    let count = soak().unwrap_or(CONNECTIONS);
    let at_once = at_once(if soak().is_some() { AT_ONCE } else { FEW_AT_ONCE });
    let address = served.api.address;
    // The first ones show what there is to keep: of each kind, as the allocator keeps what many at once needed.
    one_after_another(address, count / 10).await;
    all_at_once(&served, at_once).await;
    if soak().is_some() {
        slow(&served, at_once).await;
    }
    let before = Footprint::settled(served.pid(), None).await;
    println!("after the first: {before:?}");
    one_after_another(address, count).await;
    all_at_once(&served, at_once).await;
    if soak().is_some() {
        slow(&served, at_once).await;
    }
    let after = Footprint::settled(served.pid(), Some(before)).await;
    println!("after {count} one after another and {at_once} at once: {after:?}");
    assert!(after.memory <= before.memory + MORE, "{before:?}, then {after:?}");
    // Nobody else noticed.
    assert_eq!(served.api.run(&made, "echo here").await.expect("a command"), "here\n");
    served.api.kill(&made.id).await.expect("killed");
    served.stop().await;
    served.assert_nothing_left().await;
}

/// As many as this process has descriptors for: its own end of each, and some to spare.
fn at_once(wanted: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 8).unwrap_or(usize::MAX).min(wanted)
}

/// Each of its own address below the loopback's, in turns: so none is refused for its number.
async fn connect(address: SocketAddr, number: u64) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    let last = u8::try_from(number % 200).unwrap_or_default() + 2;
    socket.bind(([127, 0, 0, last], 0).into()).expect("an address of the loopback's");
    socket.connect(address).await.expect("the server listens")
}

async fn one_after_another(address: SocketAddr, count: u64) {
    for number in 0..count {
        let mut stream = connect(address, number).await;
        let sent = SENT[usize::try_from(number).unwrap_or_default() % SENT.len()];
        // It may close before it has all.
        let _ = stream.write_all(sent).await;
        if sent == HEALTH {
            answered(&mut stream).await;
        }
    }
}

/// Half of them ask and are answered while the others hold on to the beginning of a question; all stay until the end.
async fn all_at_once(served: &Served, count: usize) {
    let address = served.api.address;
    let mut streams = Vec::new();
    for number in 0..count {
        let mut stream = connect(address, number as u64).await;
        stream.write_all(&HEALTH[..20]).await.expect("sent");
        streams.push(stream);
    }
    all_accepted(served, count).await;
    let (asking, _holding) = streams.split_at_mut(count / 2);
    let answers = asking.iter_mut().map(|stream| async {
        stream.write_all(&HEALTH[20..]).await.expect("sent");
        answered(stream).await;
    });
    tokio::time::timeout(PATIENCE, join_all(answers)).await.expect("all are answered in time");
}

/// Waits until the server has so many: one that the kernel has not given to it yet is not there for it.
async fn all_accepted(served: &Served, count: usize) {
    let all = async || Footprint::of(served.pid()).descriptors >= count;
    eventually(&format!("the server has {count} connections"), all).await;
}

async fn answered(stream: &mut TcpStream) {
    let mut answer = [0; 12];
    let reading = tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await;
    reading.expect("an answer in time").expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200");
}

/// Silent ones, and those that send a byte now and then, are given up, and others are answered meanwhile.
async fn slow(served: &Served, count: usize) {
    let mut streams = Vec::new();
    for number in 0..count {
        streams.push(connect(served.api.address, number as u64).await);
    }
    all_accepted(served, count).await;
    let begun = Instant::now();
    let all = join_all(streams.into_iter().enumerate().map(|(number, mut stream)| async move {
        let mut answer = [0; 256];
        for byte in HEALTH[..HEALTH.len() - 4].iter().chain(std::iter::repeat(&b'x')) {
            // Every other one sends nothing at all.
            if number % 2 == 0 && stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            match tokio::time::timeout(SLOW, stream.read(&mut answer)).await {
                Ok(Ok(0) | Err(_)) => return,
                _ => assert!(begun.elapsed() < HEAD_LIMIT + PATIENCE, "a slow one is still there"),
            }
        }
    }));
    let meanwhile = async {
        while begun.elapsed() < HEAD_LIMIT / 2 {
            let (status, _) = served.api.ask(Method::GET, "/health", &[], "").await.expect("an answer");
            assert_eq!(status, StatusCode::OK);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::join!(all, meanwhile);
}
