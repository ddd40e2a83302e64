//! The sandbox's side of its network, with the tests in place of a gateway. No packet leaves the sandbox's namespace.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with, sockopt};
use sandbar_engine::Network;
use sandbar_engine::network::{
    DNS_PORT, GATEWAY_ADDRESS, GATEWAY_PORT, NetworkSockets, SOCKETS, UDP_SOCKETS, add_route, receive,
    remove_route, reply,
};
use serde_json::{Value, json};

use crate::harness::{BOUND, Bench, Options, Running};
use crate::modes::in_every_mode;

/// "Network is unreachable" has to be said at once, not after a time-out of some protocol.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Many more connections than the kernel is to remember, and what is enough where it is to remember none.
const FLOOD: u64 = 50_000;
const FEW: u64 = 2_000;
/// New connections to the gateway that are let through at once, and each second.
const TOGETHER: u64 = 2_000;
const PER_SECOND: u64 = 1_000;
const NET: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 0);

/// A sandbox with a probe that does what it is asked.
struct Inside {
    running: Running,
    path: std::path::PathBuf,
    sockets: Option<NetworkSockets>,
}

impl Inside {
    fn start(bench: &Bench, task: &Value) -> Self {
        let options = Options { network: Network::Gateway, ..Options::default() };
        let mut running = bench.start(&task.to_string(), &options);
        let line = running.read_line();
        assert_eq!(line, "ready\n", "{}", running.read_to_end());
        let sockets = running.launched.network.take();
        let path = bench.folder.path().join(&running.name).join("a.sock");
        Self { running, path, sockets }
    }

    fn sockets(&self) -> &NetworkSockets {
        self.sockets.as_ref().unwrap()
    }

    /// Asks, and answers with what will come: the probe is busy meanwhile.
    fn ask(&self, wish: &Value) -> Answer {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        writeln!(&stream, "{wish}").unwrap();
        Answer(stream)
    }

    fn answer(&self, wish: &Value) -> Value {
        self.ask(wish).read()
    }

    fn connects(&self, to: &str) -> Value {
        self.answer(&json!({ "connect": to }))
    }

    /// A connection to there arrives at the listener, with this original destination.
    fn arrives(&self, to: &str) {
        let answer = self.ask(&json!({ "connect": to }));
        let (stream, destination) = accept(&self.sockets().tcp);
        assert_eq!(destination.to_string(), to);
        { stream }.write_all(b"hello").unwrap();
        assert_eq!(answer.read(), json!({ "said": "hello", "peer": to }));
    }

    fn is_unreachable(&self, to: &str) {
        let begin = Instant::now();
        assert_eq!(self.connects(to), json!({ "errno": libc::ENETUNREACH }), "{to}");
        assert!(begin.elapsed() < AT_ONCE, "{to}: {:?}", begin.elapsed());
    }
}

struct Answer(UnixStream);

impl Answer {
    fn read(self) -> Value {
        let mut line = String::new();
        BufReader::new(self.0).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }
}

fn wait(fd: impl AsFd) {
    let bound = Timespec::try_from(BOUND).unwrap();
    assert_eq!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&bound)), Ok(1), "nothing came in time");
}

fn accept(listener: &OwnedFd) -> (TcpStream, SocketAddrV4) {
    wait(listener);
    let stream = accept_with(listener, SocketFlags::CLOEXEC).unwrap();
    let destination = sockopt::ip_original_dst(&stream).unwrap();
    (stream.into(), destination)
}

/// As the probe, which is the sandbox's root where there is one, and as its user.
fn as_each(bench: &Bench, test: impl Fn(&Inside)) {
    let mut tasks = vec![json!({ "task": "network" })];
    if bench.ids().has_root() {
        tasks.push(json!({ "task": "network", "user": true }));
    }
    for task in tasks {
        let inside = Inside::start(bench, &task);
        test(&inside);
        bench.end(inside.running);
    }
}

#[test]
fn what_has_a_route_arrives_at_the_gateway() {
    in_every_mode("network::what_has_a_route_arrives_at_the_gateway", |bench| {
        as_each(bench, |inside| {
            inside.arrives("198.18.5.5:443");
            inside.arrives("198.19.255.254:1");
            // To the gateway itself: seen as what it is, so that it can be refused.
            inside.arrives(&format!("{GATEWAY_ADDRESS}:{GATEWAY_PORT}"));
        });
    });
}

#[test]
fn what_has_none_is_unreachable_at_once() {
    in_every_mode("network::what_has_none_is_unreachable_at_once", |bench| {
        as_each(bench, |inside| {
            for to in
                ["1.1.1.1:443", "10.9.1.1:80", "169.254.169.254:80", "198.20.0.1:80", "198.17.255.255:80"]
            {
                inside.is_unreachable(to);
            }
            for to in ["[2606:4700:4700::1111]:443", "[fd00::1]:80", "[64:ff9b::101:101]:80"] {
                inside.is_unreachable(to);
            }
            // A v4-mapped address is the IPv4 one.
            inside.is_unreachable("[::ffff:1.1.1.1]:443");
        });
    });
}

#[test]
fn a_route_comes_and_goes_from_outside_only() {
    in_every_mode("network::a_route_comes_and_goes_from_outside_only", |bench| {
        as_each(bench, |inside| {
            let routes = &inside.sockets().routes;
            inside.is_unreachable("10.9.1.1:80");
            assert_eq!(inside.answer(&json!({ "do": "route" })), json!({ "errno": libc::EPERM }));
            inside.is_unreachable("10.9.1.1:80");
            // Twice is as good as once.
            for _ in 0..2 {
                add_route(routes, NET, 16).unwrap();
            }
            inside.arrives("10.9.1.1:80");
            for _ in 0..2 {
                remove_route(routes, NET, 16).unwrap();
            }
            inside.is_unreachable("10.9.1.1:80");
            add_route(routes, Ipv4Addr::UNSPECIFIED, 0).unwrap();
            inside.arrives("1.1.1.1:443");
            remove_route(routes, Ipv4Addr::UNSPECIFIED, 0).unwrap();
            inside.is_unreachable("1.1.1.1:443");
        });
    });
}

#[test]
fn loopback_is_the_sandboxs_own() {
    in_every_mode("network::loopback_is_the_sandboxs_own", |bench| {
        as_each(bench, |inside| {
            add_route(&inside.sockets().routes, Ipv4Addr::UNSPECIFIED, 0).unwrap();
            for at in ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0", "198.18.0.1:0"] {
                assert_eq!(inside.answer(&json!({ "echo": at })), json!({}), "{at}");
            }
            // Also where the two ends have different addresses.
            for (from, at) in [
                ("198.18.5.5:0", "127.0.0.1:0"),
                ("198.18.5.5:0", "198.18.0.1:0"),
                ("127.0.0.1:0", "198.18.0.1:0"),
            ] {
                let wish = json!({ "echo": at, "from": from });
                assert_eq!(inside.answer(&wish), json!({}), "from {from} to {at}");
            }
            // The gateway's port is taken at its own address only.
            let port = format!("127.0.0.1:{GATEWAY_PORT}");
            assert_eq!(inside.answer(&json!({ "echo": port })), json!({}));
            assert_eq!(inside.connects("127.0.0.1:9"), json!({ "errno": libc::ECONNREFUSED }));
        });
    });
}

#[test]
fn nothing_inside_takes_the_ports_of_a_gateway_that_is_away() {
    in_every_mode("network::nothing_inside_takes_the_ports_of_a_gateway_that_is_away", |bench| {
        let mut inside = Inside::start(bench, &json!({ "task": "network" }));
        inside.sockets = None;
        let taken = json!({ "errno": libc::EADDRINUSE });
        for (how, port) in [("listen", GATEWAY_PORT), ("listen", DNS_PORT), ("bind", DNS_PORT)] {
            for address in [GATEWAY_ADDRESS, Ipv4Addr::UNSPECIFIED] {
                let at = format!("{address}:{port}");
                let answer = inside.answer(&json!({ how: at }));
                // Ports below 1024 are for root.
                let refused = port < 1024 && answer == json!({ "errno": libc::EACCES });
                assert!(answer == taken || (refused && !bench.ids().has_root()), "{how} {at}: {answer}");
            }
        }
        bench.end(inside.running);
    });
}

#[test]
fn no_other_process_inside_has_the_sockets() {
    in_every_mode("network::no_other_process_inside_has_the_sockets", |bench| {
        let inside = Inside::start(bench, &json!({ "task": "network" }));
        let answer = inside.answer(&json!({ "do": "child" }));
        // The listener of the control protocol, which the probe lets through.
        assert_eq!(answer, json!({ "said": "1\n" }));
        bench.end(inside.running);
    });
}

#[test]
fn names_are_asked_of_the_gateway() {
    in_every_mode("network::names_are_asked_of_the_gateway", |bench| {
        as_each(bench, |inside| {
            let answer = inside.answer(&json!({ "do": "resolver" }));
            assert_eq!(answer, json!({ "said": format!("nameserver {GATEWAY_ADDRESS}\n") }));

            let dns = std::net::UdpSocket::from(inside.sockets().dns_udp.try_clone().unwrap());
            let answer = inside.ask(&json!({ "ask": format!("{GATEWAY_ADDRESS}:{DNS_PORT}") }));
            wait(&dns);
            let mut bytes = [0; 64];
            let (length, from) = dns.recv_from(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"question");
            dns.send_to(b"answer", from).unwrap();
            let resolver = format!("{GATEWAY_ADDRESS}:{DNS_PORT}");
            assert_eq!(answer.read(), json!({ "said": "answer", "from": resolver }));

            let answer = inside.ask(&json!({ "connect": resolver }));
            wait(&inside.sockets().dns_tcp);
            let stream = accept_with(&inside.sockets().dns_tcp, SocketFlags::CLOEXEC).unwrap();
            TcpStream::from(stream).write_all(b"answer").unwrap();
            assert_eq!(answer.read(), json!({ "said": "answer", "peer": resolver }));
        });
    });
}

#[test]
fn a_datagram_tells_where_it_was_sent_to_and_is_answered_from_there() {
    in_every_mode("network::a_datagram_tells_where_it_was_sent_to_and_is_answered_from_there", |bench| {
        as_each(bench, |inside| {
            // A port below 1024, too: whoever is outside owns the namespace.
            for (socket, port) in inside.sockets().udp.iter().zip([9999, 443]) {
                rustix::net::bind(socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).unwrap();
                let to = format!("198.18.7.7:{port}");
                let answer = inside.ask(&json!({ "ask": to }));
                wait(socket);
                let mut bytes = [0; 64];
                let datagram = receive(socket, &mut bytes).unwrap();
                assert_eq!(
                    (&bytes[..datagram.length], datagram.to),
                    (&b"question"[..], [198, 18, 7, 7].into())
                );
                assert_eq!(reply(socket, b"answer", &datagram).unwrap(), 6);
                assert_eq!(answer.read(), json!({ "said": "answer", "from": to }));
                let error = receive(socket, &mut bytes).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            }
            let away = inside.answer(&json!({ "ask": "1.1.1.1:9999" }));
            assert_eq!(away, json!({ "errno": libc::ENETUNREACH }));
        });
    });
}

#[test]
fn the_kernel_soon_forgets_what_has_ended() {
    in_every_mode("network::the_kernel_soon_forgets_what_has_ended", |bench| {
        let inside = Inside::start(bench, &json!({ "task": "network" }));
        let answer = inside.answer(&json!({ "do": "remembered" }));
        assert_eq!(answer, json!({ "seconds": [5, 5, 2, 2, 5], "loose": 0 }));
        bench.end(inside.running);
    });
}

#[test]
fn connections_that_do_not_go_to_the_gateway_are_not_remembered() {
    in_every_mode("network::connections_that_do_not_go_to_the_gateway_are_not_remembered", |bench| {
        as_each(bench, |inside| {
            add_route(&inside.sockets().routes, Ipv4Addr::UNSPECIFIED, 0).unwrap();
            let nobody = format!("{GATEWAY_ADDRESS}:1");
            for (own, from) in [
                ("198.18.0.1:0", "0.0.0.0:0"),
                ("198.18.0.1:0", "198.18.5.5:0"),
                ("198.18.0.1:0", "127.0.0.1:0"),
                ("127.0.0.1:0", "198.18.5.5:0"),
                ("127.0.0.1:0", "1.1.1.1:0"),
            ] {
                let wish = json!({ "flood": nobody, "attempts": FEW, "own": own, "from": from });
                assert_eq!(inside.answer(&wish), json!({ "remembered": 0 }), "from {from} to {own}");
            }
        });
    });
}

#[test]
fn few_of_many_connections_to_the_gateway_are_remembered() {
    in_every_mode("network::few_of_many_connections_to_the_gateway_are_remembered", |bench| {
        as_each(bench, |inside| {
            add_route(&inside.sockets().routes, Ipv4Addr::UNSPECIFIED, 0).unwrap();
            let before = Instant::now();
            for to in ["198.18.0.1:15001", "198.18.5.5:443", "1.1.1.1:443"] {
                let answer = inside.answer(&json!({ "flood": to, "attempts": FLOOD }));
                let known = answer["remembered"].as_u64().unwrap();
                let most = TOGETHER + PER_SECOND * (1 + before.elapsed().as_secs());
                println!("to {to}: {known} of at most {most}");
                // Some are: else this would show nothing.
                assert!(0 < known && known <= most, "to {to}: {known}, most {most}");
            }
        });
    });
}

#[test]
fn what_is_handed_out_is_what_was_asked_for() {
    in_every_mode("network::what_is_handed_out_is_what_was_asked_for", |bench| {
        let inside = Inside::start(bench, &json!({ "task": "network" }));
        let sockets = inside.sockets();
        assert_eq!((sockets.in_order().len(), sockets.udp.len()), (SOCKETS, UDP_SOCKETS));
        let copies = || -> Vec<OwnedFd> {
            sockets.in_order().iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect()
        };
        NetworkSockets::checked(copies()).unwrap();
        let mut swapped = copies();
        swapped.swap(0, 2);
        NetworkSockets::checked(swapped).unwrap_err();
        for place in 0..SOCKETS {
            // A listener of the machine's own network.
            let mut forged = copies();
            forged[place] = TcpListener::bind("127.0.0.1:0").unwrap().into();
            NetworkSockets::checked(forged).unwrap_err();
        }
        bench.end(inside.running);
        let without = bench.start(&json!({ "task": "wait" }).to_string(), &Options::default());
        assert!(without.launched.network.is_none());
        bench.end(without);
    });
}
