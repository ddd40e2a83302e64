//! A gateway on a thread of its own, and whoever asks it for something on another.

use std::future::pending;
use std::io::Read;
use std::net::SocketAddr;

use sandbar_core::DecisionReason;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::*;
use crate::testing::{Bench, PATIENCE, rules};

/// How long a change may take though the gateway's thread hangs: two waits for flows to end, and some more.
const CHANGE: Duration = Duration::from_secs(8);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A gateway whose thread is left behind at the end, whether it hangs or not.
fn elsewhere(policy: EgressPolicy, udp: Vec<OwnedFd>) -> Bench {
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            told.send(Bench::with(policy, Limits::default(), Vec::new(), udp).await).unwrap();
            pending::<()>().await;
        });
    });
    heard.recv_timeout(PATIENCE).unwrap()
}

fn socket() -> OwnedFd {
    rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).unwrap()
}

#[test]
fn a_change_cuts_though_the_thread_waits_for_a_connection() {
    let bench = elsewhere(rules(&["a.test:7"]), Vec::new());
    bench.outside.name("a.test", &["93.184.215.14"]);
    runtime().block_on(async {
        let host = bench.outside.host("93.184.215.14:7").await;
        let stream = bench.connect_to("a.test", 7).await;
        let _outside = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
        assert_eq!(bench.gateway.counters().open, 1);
        // As a copy inside can do it. The next connection is accepted, and then the thread waits for one more.
        bench.gateway.serving.listeners[0].set_nonblocking(false).unwrap();
        let _next = bench.connect_to("a.test", 7).await;
        let frozen = async {
            while !bench.gateway.is_frozen() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(FROZEN * 2, frozen).await.expect("it is not frozen, or nobody sees that");
        timeout(CHANGE, bench.gateway.set_policy(&EgressPolicy::DenyAll)).await.unwrap().unwrap();
        assert_eq!(bench.gateway.counters().open, 0);
        let mut stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let end = stream.read(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(end, Ok(0) | Err(io::ErrorKind::ConnectionReset)), "{end:?}");
        let thawed = async {
            while bench.gateway.is_frozen() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, thawed).await.expect("it goes on");
    });
}

#[test]
fn rules_for_udp_are_served_by_the_gateway_and_not_by_whoever_sets_them() {
    let bench = elsewhere(EgressPolicy::DenyAll, vec![socket()]);
    let port = std::net::UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    // The runtime of the change ends with it.
    runtime().block_on(bench.gateway.set_policy(&rules(&[&format!("a.test:{port}/udp")]))).unwrap();
    bench.outside.name("a.test", &["93.184.215.14"]);
    runtime().block_on(async {
        let host = bench.outside.datagrams(&format!("93.184.215.14:{port}")).await;
        let [_, second, third, fourth] = bench.lookup("a.test.").unwrap().octets();
        let program = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let to = SocketAddr::from(([127, second - 18, third, fourth], port));
        program.send_to(b"one", to).await.unwrap();
        let mut buffer = [0; 8];
        let length = timeout(PATIENCE, host.recv(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(&buffer[..length], b"one");
    });
}

#[tokio::test]
async fn what_can_not_be_had_keeps_nothing_wider_in_force() {
    let taken = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let udp = format!("b.test:{port}/udp");
    let bench = Bench::with(EgressPolicy::AllowAll, Limits::default(), Vec::new(), vec![socket()]).await;
    bench.outside.name("c.test", &["93.184.215.14"]);
    let host = bench.outside.host("93.184.215.14:7").await;
    let _stream = bench.connect_to("c.test", 7).await;
    let _outside = timeout(PATIENCE, host.accept()).await.unwrap().unwrap();
    let error = bench.gateway.set_policy(&rules(&["a.test", &udp])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&format!("`{udp}`")), "{error}");
    assert_eq!(bench.gateway.policy(), rules(&["a.test"]));
    assert_eq!(bench.gateway.counters().open, 0);
    assert!(bench.decision(DecisionReason::PolicyChanged).await.name.is_some());
    // One that is never taken changes nothing.
    let many = rules(&["a.test", "b.test:1000-1001/udp"]);
    assert_eq!(bench.gateway.check_policy(&many).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(bench.gateway.set_policy(&many).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(bench.gateway.policy(), rules(&["a.test"]));
    drop(bench);

    let next = Bench::with(rules(&["a.test", &udp]), Limits::default(), Vec::new(), vec![socket()]).await;
    assert_eq!(next.gateway.policy(), rules(&["a.test"]));
    assert!(next.gateway.lacks().unwrap().contains(&udp));
    drop(taken);
    next.gateway.set_policy(&rules(&["a.test", &udp])).await.unwrap();
    assert_eq!(next.gateway.policy(), rules(&["a.test", &udp]));
}

#[tokio::test]
async fn an_explanation_heeds_what_the_way_out_would_refuse() {
    let bench = Bench::start(EgressPolicy::AllowAll).await;
    bench.outside.own("93.184.215.14");
    let explain = |address: &str| {
        let to = Destination::Address(address.parse().unwrap());
        bench.gateway.explain(&to, 443, Protocol::Tcp)
    };
    assert_eq!(explain("93.184.215.15").verdict, Verdict::Allowed);
    for (address, reason, word) in [
        ("93.184.215.14", DecisionReason::ForbiddenAddress, "own"),
        ("2606:4700::1", DecisionReason::NotAllowed, "IPv6"),
    ] {
        let explained = explain(address);
        assert_eq!((explained.verdict, explained.reason), (Verdict::Denied, reason));
        assert!(explained.sentence.contains(word), "{}", explained.sentence);
    }
}
