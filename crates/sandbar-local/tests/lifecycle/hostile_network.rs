//! An agent that is not ours any more and holds the sockets of the sandbox's network: it can end that network, and nothing else.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with, sockopt,
};
use sandbar_core::{
    Command, Destination, EgressPolicy, ErrorKind, GatewayState, Protocol, SandboxExt, SandboxProvider,
    SpawnOptions,
};

use crate::support::fake::{Fake, lingering};
use crate::support::{Bed, agent_pid, create, end_shim, is_alive};

/// Far more than the shim takes to answer.
const PROMPT: Duration = Duration::from_secs(8);
/// The most descriptors that the kernel passes on at once.
const MOST: usize = 253;

/// Asks the true agent what a shim asks that takes over.
fn ask(socket: &Path, op: &str) -> (Vec<u8>, Vec<OwnedFd>) {
    let stream = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("a socket");
    sockopt::set_socket_timeout(&stream, sockopt::Timeout::Recv, Some(PROMPT)).expect("a bound");
    connect(&stream, &SocketAddrUnix::new(socket).expect("a short path")).expect("the agent listens");
    send(&stream, format!(r#"{{"v":1,"op":"{op}"}}"#).as_bytes(), SendFlags::NOSIGNAL).expect("asked");
    let (mut bytes, mut space) =
        (vec![0; 4096], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))]);
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(&stream, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .expect("an answer");
    let descriptors = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let descriptors = descriptors.collect();
    bytes.truncate(got.bytes);
    (bytes, descriptors)
}

/// Makes something else of the true sockets.
type Lie = fn(Vec<OwnedFd>) -> Vec<OwnedFd>;

/// What may be given in the place of a network's sockets.
const LIES: &[(&str, Lie)] = &[
    ("nothing", |_| Vec::new()),
    ("one too few", |mut true_ones| {
        true_ones.pop();
        true_ones
    }),
    ("files", |true_ones| {
        true_ones.iter().map(|_| std::fs::File::open("/dev/null").expect("a file").into()).collect()
    }),
    ("another order", |mut true_ones| {
        true_ones.swap(0, 2);
        true_ones
    }),
    ("a listener of the host", |mut true_ones| {
        true_ones[0] = TcpListener::bind("127.0.0.1:0").expect("a listener").into();
        true_ones
    }),
    ("a datagram socket of the host as the resolver's", |mut true_ones| {
        true_ones[1] = UdpSocket::bind("127.0.0.1:0").expect("a socket").into();
        true_ones
    }),
    ("a connection in the place of routing", |mut true_ones| {
        true_ones[3] = UnixStream::pair().expect("a pair").0.into();
        true_ones
    }),
    ("connections that linger", |true_ones| true_ones.iter().map(|_| lingering()).collect()),
    ("far too many", |_| {
        (0..MOST).map(|_| std::fs::File::open("/dev/null").expect("a file").into()).collect()
    }),
];

#[tokio::test]
async fn one_that_hands_over_something_else_is_not_taken_over_and_harms_nobody() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let (sandbox, other) = (create(&provider).await, create(&provider).await);
    if sandbox.record().await.expect("a record").egress.gateway.is_none() {
        println!("skipped: no gateway on this machine");
        return;
    }
    let id = sandbox.id().clone();
    let folder = bed.folder(&id);
    let (socket, kept) = (folder.join("ctl.sock"), folder.join("true.sock"));
    end_shim(&bed, &id).await;
    for (what, lie) in LIES {
        std::fs::hard_link(&socket, &kept).expect("the true one");
        let (true_one, count) = (kept.clone(), AtomicUsize::new(0));
        // Each that takes over asks for the listeners first, and then for the network.
        let fake = Fake::ctl_saying(&folder, move || {
            if count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                return ask(&true_one, "listeners");
            }
            let (bytes, descriptors) = ask(&true_one, "network");
            (bytes, lie(descriptors))
        });
        let begun = Instant::now();
        let error = sandbox.commands().run(&Command::new("true")).await.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error:?}");
        assert!(error.to_string().contains("hand over") && error.hint().is_some(), "{what}: {error:?}");
        assert!(begun.elapsed() < PROMPT, "{what}: {:?}", begun.elapsed());
        assert!(is_alive(agent_pid(&bed, &id)), "{what}: it lives on");
        let output = other.commands().run(&Command::new("true")).await.expect("an output");
        assert!(output.status.is_success(), "{what}");
        let record = bed.provider().describe(&id).await.expect("a look").expect("a record");
        assert_eq!(record.egress.gateway, Some(GatewayState::Down), "{what}");
        drop(fake);
        std::fs::rename(&kept, &socket).expect("the true one is back");
    }
    let output = sandbox.commands().run(&Command::new("true")).await.expect("the true one is taken over");
    assert!(output.status.is_success());
    assert_eq!(sandbox.record().await.expect("a record").egress.gateway, Some(GatewayState::Serving));
    sandbox.destroy().await.expect("destroyed");
    other.destroy().await.expect("destroyed");
    bed.assert_empty("after the liar").await;
}

#[tokio::test]
async fn sockets_that_were_made_to_wait_do_not_keep_the_shim() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    if sandbox.record().await.expect("a record").egress.gateway.is_none() {
        println!("skipped: no gateway on this machine");
        return;
    }
    let (_, sockets) = ask(&bed.folder(sandbox.id()).join("ctl.sock"), "network");
    assert!(sockets.len() > 4, "{}", sockets.len());
    for socket in &sockets {
        let flags = fcntl_getfl(socket).expect("flags");
        fcntl_setfl(socket, flags - OFlags::NONBLOCK).expect("it waits now");
    }
    // Whatever comes makes the gateway look, and then wait for more.
    let knock = "import socket\nfor kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n s = socket.socket(socket.AF_INET, kind); s.settimeout(0.3)\n try: s.connect(('198.18.0.1', 53)); s.send(b'x' * 20); s.recv(9)\n except OSError: pass\n";
    let knocked =
        sandbox.commands().run(&Command::new("python3").args(["-c", knock])).await.expect("an output");
    assert!(knocked.status.is_success(), "{knocked:?}");
    let processes = sandbox.require_processes().expect("processes");
    processes.spawn(&Command::new("sleep").arg("600"), SpawnOptions::new()).await.expect("a process");
    let begun = Instant::now();
    sandbox.require_metrics().expect("metrics").sample().await.expect("a sample");
    let network = sandbox.require_network().expect("a network");
    let metadata = Destination::Address([169, 254, 169, 254].into());
    network.explain(metadata, 80, Protocol::Tcp).await.expect("an answer");
    network.set_policy(EgressPolicy::allow(["a.test"]).expect("a rule")).await.expect("set");
    assert_eq!(network.policy().await.expect("a policy"), EgressPolicy::allow(["a.test"]).expect("a rule"));
    network.counters().await.expect("counters");
    sandbox.record().await.expect("a record");
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    let begun = Instant::now();
    sandbox.destroy().await.expect("destroyed");
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    bed.assert_empty("after the one that waits").await;
}
