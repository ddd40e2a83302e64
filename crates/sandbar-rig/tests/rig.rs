//! What tests of egress rely on.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::time::Duration;

use sandbar_rig::{FORBIDDEN, HOST, PUBLIC, Reach, Rig, inside};

/// For what happens within the machine.
const SOON: Duration = Duration::from_secs(5);
/// How long to wait for what must not come.
const SILENCE: Duration = Duration::from_millis(300);

fn dial(to: impl Into<IpAddr>, port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::new(to.into(), port), SOON)?;
    stream.set_read_timeout(Some(SOON))?;
    Ok(stream)
}

fn echo(to: IpAddr, port: u16) {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket.send_to(b"anybody?", (to, port)).unwrap();
    let mut answer = [0; 64];
    let (length, from) = socket.recv_from(&mut answer).unwrap_or_else(|e| panic!("{to} port {port}: {e}"));
    assert_eq!(&answer[..length], b"anybody?");
    assert_eq!(from, SocketAddr::new(to, port), "the answer comes from the address that was asked");
}

fn curl(rig: &Rig, arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "--cacert"]).arg(rig.ca_pem_path()).args(arguments);
    command.output().expect("curl is here")
}

fn fetched(rig: &Rig, arguments: &[&str]) -> String {
    let output = curl(rig, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_is_dialled_arrives_at_every_address() {
    inside("what_is_dialled_arrives_at_every_address", || {
        let rig = Rig::connect();
        let own = rig.address();
        for &to in FORBIDDEN.iter().chain(PUBLIC).chain(&[own.v4.into(), own.v6.into()]) {
            let mark = rig.mark();
            let mut stream = dial(to, 6379).unwrap_or_else(|e| panic!("{to}: {e}"));
            stream.write_all(b"hello").unwrap();
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"hello");
            echo(to, 443);
            let arrivals = rig.arrivals_since(mark, Some(to));
            let seen = |protocol: &str, port| {
                arrivals.iter().any(|seen| seen.protocol == protocol && seen.port == Some(port))
            };
            assert!(seen("tcp", 6379) && seen("udp", 443), "{to}: {arrivals:?}");
        }
        let connections = rig.connections(own.v4);
        assert_eq!((connections.len(), connections[0].received, connections[0].sent), (1, 5, 5));
        assert_eq!(connections[0].head, b"hello");
        assert_eq!(connections[0].from.ip(), HOST);
    });
}

#[test]
fn what_nobody_listens_for_is_seen() {
    inside("what_nobody_listens_for_is_seen", || {
        let rig = Rig::connect();
        let to = rig.address();
        assert!(rig.arrivals(to.v4).is_empty() && rig.arrivals(to.v6).is_empty());
        for to in [IpAddr::from(to.v4), to.v6.into()] {
            assert_eq!(dial(to, 4321).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            UdpSocket::bind(any).unwrap().send_to(b"psst", (to, 4322)).unwrap();
            let arrivals = rig.arrivals(to);
            let seen: Vec<_> = arrivals.iter().map(|seen| (seen.protocol.as_str(), seen.port)).collect();
            assert_eq!(seen, [("tcp", Some(4321)), ("udp", Some(4322))]);
            assert_eq!(arrivals[1].head, b"psst");
        }
        rig.listen(4321);
        dial(to.v4, 4321).expect("somebody listens now");
    });
}

#[test]
fn a_packet_of_any_protocol_is_seen() {
    inside("a_packet_of_any_protocol_is_seen", || {
        // Only root may make one; the other tests' packets are everybody's.
        let raw = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(47.into()));
        let Ok(raw) = raw else {
            assert!(!rustix::process::geteuid().is_root(), "root may open a raw socket");
            return;
        };
        let rig = Rig::connect();
        let to = rig.address().v4;
        raw.send_to(b"\0\0\x08\0tunnel", &SocketAddr::new(to.into(), 0).into()).unwrap();
        let arrivals = rig.arrivals(to);
        assert_eq!(arrivals.iter().map(|seen| seen.protocol.as_str()).collect::<Vec<_>>(), ["gre"]);
    });
}

#[test]
fn names_with_tls_in_both_versions_of_http() {
    inside("names_with_tls_in_both_versions_of_http", || {
        let rig = Rig::connect();
        let (name, address) = rig.host("tls");
        for (flag, version) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
            let url = format!("https://{name}/some/where?x=y");
            let text = fetched(&rig, &[flag, "-H", "x-own: mine", &url]);
            let page: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!((&page["version"], &page["path"]), (&version.into(), &"/some/where".into()));
            assert_eq!((&page["host"], &page["server_name"]), (&name.as_str().into(), &name.as_str().into()));
            assert!(text.contains(r#"["x-own","mine"]"#), "{text}");
        }
        let requests = rig.requests(&name);
        assert_eq!(requests.iter().map(|r| r.version.as_str()).collect::<Vec<_>>(), ["HTTP/1.1", "HTTP/2.0"]);
        let mut connections = rig.connections(address.v4);
        connections.extend(rig.connections(address.v6));
        assert!(connections.iter().all(|c| c.server_name.as_deref() == Some(&name)), "{connections:?}");
        let unknown = curl(&rig, &["--cacert", "/dev/null", &format!("https://{name}/")]);
        assert!(!unknown.status.success(), "only the rig's own authority vouches for its names");
    });
}

#[test]
fn the_system_trusts_the_authority() {
    inside("the_system_trusts_the_authority", || {
        let rig = Rig::connect();
        let (name, _) = rig.host("trusted");
        let Ok(list) = std::fs::read_to_string("/etc/ssl/certs/ca-certificates.crt") else {
            eprintln!("skipped: this machine has no list of trusted authorities");
            return;
        };
        let own = std::fs::read_to_string(rig.ca_pem_path()).unwrap();
        assert!(list.ends_with(&own) && list.len() > own.len());
        let url = format!("https://{name}/");
        let output = Command::new("curl").args(["-sS", "--max-time", "20", &url]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}

#[test]
fn pages() {
    inside("pages", || {
        let rig = Rig::connect();
        let (name, _) = rig.host("pages");
        let at = |path: &str| format!("https://{name}{path}");
        let discard = ["-o", "/dev/null", "-w", "%{http_code} %{size_download}"];
        for flag in ["--http1.1", "--http2"] {
            let get = |path: &str| fetched(&rig, &[&discard[..], &[flag, &at(path)]].concat());
            assert_eq!(get("/bytes/1234567"), "200 1234567");
            assert_eq!(get("/status/418"), "418 0");
            assert_eq!(get("/drip?count=3&ms=1"), "200 21");
            assert_eq!(get("/redirect?to=%2Fstatus%2F204"), "302 0");
            let place = fetched(
                &rig,
                &[
                    flag,
                    "-L",
                    discard[0],
                    discard[1],
                    "-w",
                    "%{url_effective}",
                    &at("/redirect?to=%2Fstatus%2F204"),
                ],
            );
            assert_eq!(place, at("/status/204"));
            let data = "z".repeat(100_000);
            assert_eq!(fetched(&rig, &[flag, "-d", &data, &at("/upload")]), r#"{"received":100000}"#);
        }
    });
}

#[test]
fn a_web_socket_echoes() {
    use futures::{SinkExt, StreamExt};
    use tokio_tungstenite::client_async;
    use tokio_tungstenite::tungstenite::Message;

    inside("a_web_socket_echoes", || {
        let rig = Rig::connect();
        let (name, address) = rig.host("ws");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let talk = async {
            let stream = tokio::net::TcpStream::connect((address.v4, 80)).await.unwrap();
            let (mut socket, _) = client_async(format!("ws://{name}/ws"), stream).await.unwrap();
            socket.send(Message::text("round")).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("round"));
            socket.close(None).await.unwrap();
        };
        runtime.block_on(async { tokio::time::timeout(SOON, talk).await }).expect("an echo comes soon");
    });
}

#[test]
fn git_clones_from_a_folder() {
    inside("git_clones_from_a_folder", || {
        let rig = Rig::connect();
        let (name, _) = rig.host("git");
        let folder = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.current_dir(folder.path()).args(["-c", "user.name=x", "-c", "user.email=x@example.com"]);
            command.env("GIT_SSL_CAINFO", rig.ca_pem_path()).env("GIT_CONFIG_NOSYSTEM", "1").args(arguments);
            let output = command.output().expect("git is here");
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        git(&["init", "-q", "origin"]);
        git(&["-C", "origin", "commit", "-q", "--allow-empty", "-m", "first"]);
        git(&["clone", "-q", "--bare", "origin", "site/repo.git"]);
        git(&["-C", "site/repo.git", "update-server-info"]);
        rig.serve_folder(&name, &folder.path().join("site"));
        git(&["clone", "-q", &format!("https://{name}/repo.git"), "clone"]);
        git(&["-C", "clone", "log", "-1"]);
        let above = curl(&rig, &["--path-as-is", "-f", &format!("https://{name}/../origin/.git/HEAD")]);
        assert!(!above.status.success(), "nothing above the folder is served");
    });
}

#[test]
fn an_address_can_be_out_of_reach() {
    inside("an_address_can_be_out_of_reach", || {
        let rig = Rig::connect();
        let (own, other) = (rig.address(), rig.address());
        for (to, other) in [(IpAddr::from(own.v4), IpAddr::from(other.v4)), (own.v6.into(), other.v6.into())]
        {
            for _ in 0..2 {
                rig.set_reach(to, Reach::Unreachable);
                let e = dial(to, 443).expect_err("there is no such host");
                let unreachable = [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
                assert!(unreachable.contains(&e.kind()), "{to}: {e}");
                rig.set_reach(to, Reach::Silent);
                let mark = rig.mark();
                let e =
                    TcpStream::connect_timeout(&SocketAddr::new(to, 443), SILENCE).expect_err("all is lost");
                assert_eq!(e.kind(), ErrorKind::TimedOut, "{to}: {e}");
                assert!(!rig.arrivals_since(mark, Some(to)).is_empty(), "what is lost was seen");
                dial(other, 443).expect("the other address is as it was");
                rig.set_reach(to, Reach::Open);
                dial(to, 443).unwrap_or_else(|e| panic!("{to}: {e}"));
            }
        }
    });
}

#[test]
fn those_that_greet_first_do() {
    inside("those_that_greet_first_do", || {
        let rig = Rig::connect();
        let to = rig.address().v4;
        for (port, greeting) in [(22, "SSH-2.0-rig\r\n"), (25, "220 rig ESMTP\r\n")] {
            let mut answer = vec![0; greeting.len()];
            dial(to, port).unwrap().read_exact(&mut answer).unwrap();
            assert_eq!(answer, greeting.as_bytes());
        }
    });
}

#[test]
fn the_host_can_be_cut_off() {
    inside("the_host_can_be_cut_off", || {
        let rig = Rig::connect_alone();
        dial(Ipv4Addr::new(1, 1, 1, 1), 443).expect("the link is up");
        rig.link_down();
        for &to in PUBLIC.iter().chain(FORBIDDEN) {
            let e = dial(to, 443).expect_err("nothing is reached without a link");
            assert_eq!(e.kind(), ErrorKind::NetworkUnreachable, "{to}: {e}");
        }
        rig.link_up();
        for &to in PUBLIC.iter().chain(FORBIDDEN) {
            dial(to, 443).unwrap_or_else(|e| panic!("{to}: {e}"));
        }
        rig.link_down();
        drop(rig);
        dial(Ipv4Addr::new(1, 1, 1, 1), 443).expect("the next test finds a link");
    });
}
