use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

use sandbar_core::{DecisionReason, EgressPolicy, Verdict};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::limits::Limits;
use crate::testing::{Bench, PATIENCE, rules};

fn sockets(count: usize) -> Vec<OwnedFd> {
    let unbound = || {
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).unwrap()
    };
    (0..count).map(|_| unbound()).collect()
}

/// A port that nobody has.
fn free_port() -> u16 {
    std::net::UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}

/// Where on loopback a synthetic address is.
fn on_loopback(address: Ipv4Addr, port: u16) -> SocketAddrV4 {
    let [_, second, third, fourth] = address.octets();
    SocketAddrV4::new(Ipv4Addr::new(127, second - 18, third, fourth), port)
}

#[tokio::test]
async fn datagrams_pass_by_rule_and_come_back_from_where_they_went() {
    let port = free_port();
    let policy = rules(&[&format!("a.test:{port}/udp"), "b.test:443"]);
    let bench = Bench::with(policy, Limits::default(), Vec::new(), sockets(2)).await;
    bench.outside.name("a.test", &["10.0.0.1", "93.184.215.14"]);
    let host = bench.outside.datagrams(&format!("93.184.215.14:{port}")).await;
    let to = on_loopback(bench.lookup("a.test.").unwrap(), port);
    let program = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    program.send_to(b"one", to).await.unwrap();
    program.send_to(b"two", to).await.unwrap();
    let mut buffer = [0; 64];
    for expected in [b"one", b"two"] {
        let (length, from) = timeout(PATIENCE, host.recv_from(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(&buffer[..length], expected);
        host.send_to(b"back", from).await.unwrap();
        let (length, from) = timeout(PATIENCE, program.recv_from(&mut buffer)).await.unwrap().unwrap();
        assert_eq!((&buffer[..length], from), (&b"back"[..], to.into()));
    }
    assert_eq!(bench.outside.dialled(), [format!("93.184.215.14:{port}")]);
    let counters = bench.gateway.counters();
    assert_eq!((counters.open, counters.bytes_out, counters.bytes_in), (1, 6, 8));

    // To a name that is allowed by TCP only, and to an address that stands for nothing.
    let b = bench.lookup("b.test.").unwrap();
    for (other, reason) in
        [(b, DecisionReason::PortNotAllowed), (Ipv4Addr::new(198, 18, 9, 9), DecisionReason::NotAllowed)]
    {
        program.send_to(b"no", on_loopback(other, port)).await.unwrap();
        assert_eq!(bench.decision(reason).await.verdict, Verdict::Denied);
    }

    bench.gateway.set_policy(&EgressPolicy::DenyAll).await.unwrap();
    assert_eq!(bench.gateway.counters().open, 0);
    assert_eq!(bench.decision(DecisionReason::PolicyChanged).await.bytes_out, Some(6));
    program.send_to(b"three", to).await.unwrap();
    let denied = async {
        while !bench
            .told
            .all()
            .iter()
            .any(|d| d.verdict == Verdict::Denied && d.name.as_deref() == Some("a.test"))
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, denied).await.unwrap();
    assert_eq!(bench.gateway.counters().bytes_out, 6);
}

#[tokio::test]
async fn a_flow_ends_when_it_is_quiet_and_there_are_only_so_many() {
    let port = free_port();
    let limits = Limits { udp_flows: 1, udp_idle: Duration::from_millis(50), ..Limits::default() };
    let policy = rules(&[&format!("a.test:{port}/udp")]);
    let bench = Bench::with(policy, limits, Vec::new(), sockets(1)).await;
    bench.outside.name("a.test", &["93.184.215.14"]);
    let host = bench.outside.datagrams(&format!("93.184.215.14:{port}")).await;
    let to = on_loopback(bench.lookup("a.test.").unwrap(), port);
    let first = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let second = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    first.send_to(b"one", to).await.unwrap();
    second.send_to(b"two", to).await.unwrap();
    assert_eq!(bench.decision(DecisionReason::Limit).await.detail.as_deref(), Some("open UDP flows"));
    bench.decision(DecisionReason::Finished).await;
    bench.quiet().await;
    second.send_to(b"two", to).await.unwrap();
    let mut buffer = [0; 8];
    for expected in [b"one", b"two"] {
        let length = timeout(PATIENCE, host.recv(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(&buffer[..length], expected);
    }
}

#[tokio::test]
async fn a_socket_keeps_its_port_and_ports_that_have_none_are_refused() {
    let (one, two) = (free_port(), free_port());
    let rule = |port: u16| format!("a.test:{port}/udp");
    let sockets = sockets(1);
    let copies = sockets.iter().map(|socket| socket.try_clone().unwrap()).collect();
    let bench = Bench::with(rules(&[&rule(one)]), Limits::default(), Vec::new(), sockets).await;
    let error = bench.gateway.set_policy(&rules(&["a.test:any/udp"])).await.unwrap_err();
    assert!(error.to_string().contains("a.test:any/udp"), "{error}");
    assert_eq!(bench.gateway.policy(), rules(&[&rule(one)]));
    let error = bench.gateway.set_policy(&rules(&["b.test", &rule(two)])).await.unwrap_err();
    assert!(error.to_string().contains(&rule(two)), "{error}");
    assert_eq!(bench.gateway.policy(), rules(&["b.test"]));
    drop(bench);
    // A gateway that takes over gets the socket with its port.
    let next = Bench::with(rules(&[&rule(one)]), Limits::default(), Vec::new(), copies).await;
    assert_eq!(next.gateway.policy(), rules(&[&rule(one)]));
}

#[tokio::test]
async fn what_comes_from_a_port_of_the_gateway_is_not_passed_on() {
    let port = free_port();
    let sockets = sockets(2);
    let copy: std::net::UdpSocket = sockets[1].try_clone().unwrap().into();
    let bench =
        Bench::with(rules(&[&format!("a.test:{port}/udp")]), Limits::default(), Vec::new(), sockets).await;
    bench.outside.name("a.test", &["93.184.215.14"]);
    let host = bench.outside.datagrams(&format!("93.184.215.14:{port}")).await;
    let to = on_loopback(bench.lookup("a.test.").unwrap(), port);
    // A copy of the gateway's own socket, as there is one inside.
    assert_eq!(copy.local_addr().unwrap().port(), port);
    copy.send_to(b"loop", to).unwrap();
    let program = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    program.send_to(b"one", to).await.unwrap();
    let mut buffer = [0; 8];
    let length = timeout(PATIENCE, host.recv(&mut buffer)).await.unwrap().unwrap();
    assert_eq!(&buffer[..length], b"one");
    assert_eq!((bench.outside.dialled().len(), bench.gateway.counters().open), (1, 1));
}
