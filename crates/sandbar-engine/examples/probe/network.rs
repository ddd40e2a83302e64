//! Does what it is asked through the listener of the guest protocol, one line of JSON each way.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};
use sandbar_engine::handover::AGENT_LISTENER_FD;
use sandbar_engine::network::{NetworkSockets, add_route};
use sandbar_engine::process::{take_descriptor, take_network};
use serde_json::{Value, json};

/// Nothing here takes anywhere near as long.
const BOUND: Duration = Duration::from_secs(10);

pub(crate) fn serve(config: &Value) {
    let held = take_network().unwrap().unwrap();
    let listener = UnixListener::from(take_descriptor(AGENT_LISTENER_FD).unwrap());
    if config["user"] == true {
        // SAFETY: integers only.
        assert_eq!(unsafe { libc::setresgid(1000, 1000, 1000) + libc::setresuid(1000, 1000, 1000) }, 0);
    }
    println!("ready");
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        let wish: Value = serde_json::from_str(&line).unwrap();
        let answer = done(&wish, &held).unwrap_or_else(|error| json!({ "errno": error.raw_os_error() }));
        writeln!(&stream, "{answer}").unwrap();
    }
}

fn done(wish: &Value, held: &NetworkSockets) -> io::Result<Value> {
    let address = |key: &str| wish[key].as_str().map(|text| text.parse::<SocketAddr>().unwrap());
    if let Some(to) = address("connect") {
        let mut stream = TcpStream::connect_timeout(&to, BOUND)?;
        stream.set_read_timeout(Some(BOUND))?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        return Ok(json!({ "said": said, "peer": stream.peer_addr()?.to_string() }));
    }
    if let Some(to) = address("ask") {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(BOUND))?;
        socket.send_to(b"question", to)?;
        let mut bytes = [0; 64];
        let (length, from) = socket.recv_from(&mut bytes)?;
        return Ok(json!({ "said": String::from_utf8_lossy(&bytes[..length]), "from": from.to_string() }));
    }
    if let Some(to) = address("flood") {
        return flood(to, wish["attempts"].as_u64().unwrap(), address("from"), address("own"));
    }
    if let Some(at) = address("listen") {
        return TcpListener::bind(at).map(|_| json!({}));
    }
    if let Some(at) = address("bind") {
        return UdpSocket::bind(at).map(|_| json!({}));
    }
    if let Some(at) = address("echo") {
        return echo(at, address("from")).map(|()| json!({}));
    }
    match wish["do"].as_str().unwrap() {
        "route" => {
            let error = add_route(held.routes.as_fd(), [10, 9, 0, 0].into(), 16).unwrap_err();
            let source = std::error::Error::source(&error).unwrap().downcast_ref::<io::Error>().unwrap();
            Ok(json!({ "errno": source.raw_os_error() }))
        }
        "resolver" => Ok(json!({ "said": fs::read_to_string("/etc/resolv.conf")? })),
        "child" => {
            let output = Command::new("/proc/self/exe").arg("descriptors").output()?;
            Ok(json!({ "said": String::from_utf8_lossy(&output.stdout) }))
        }
        "remembered" => {
            let states = ["syn_sent", "syn_recv", "time_wait", "close", "last_ack"];
            let seconds = states.map(|state| remembered(&format!("tcp_timeout_{state}")));
            let seconds: io::Result<Vec<u64>> = seconds.into_iter().collect();
            Ok(json!({ "seconds": seconds?, "loose": remembered("tcp_loose")? }))
        }
        other => panic!("unknown wish {other}"),
    }
}

/// A word there and back, over a connection from one of this process's addresses to another.
fn echo(at: SocketAddr, from: Option<SocketAddr>) -> io::Result<()> {
    const WORD: &[u8; 5] = b"hello";
    let listener = TcpListener::bind(at)?;
    let to = listener.local_addr()?;
    let client = std::thread::spawn(move || {
        let stream = match from {
            Some(from) => {
                let socket =
                    socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
                bind(&socket, &from)?;
                connect(&socket, &to)?;
                TcpStream::from(socket)
            }
            None => TcpStream::connect_timeout(&to, BOUND)?,
        };
        said_back(&stream, WORD)
    });
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(BOUND))?;
    let mut bytes = [0; WORD.len()];
    stream.read_exact(&mut bytes)?;
    stream.write_all(&bytes)?;
    drop(stream);
    client.join().unwrap()
}

fn said_back(mut stream: &TcpStream, word: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(BOUND))?;
    stream.write_all(word)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    assert_eq!(bytes, word);
    Ok(())
}

/// Begins connections and gives each up at once: to there or, if given, to an own listener that takes none.
fn flood(
    to: SocketAddr,
    attempts: u64,
    from: Option<SocketAddr>,
    own: Option<SocketAddr>,
) -> io::Result<Value> {
    const BACKLOG: i32 = 0;
    let own = own.map(TcpListener::bind).transpose()?;
    let to = match &own {
        Some(listener) => {
            listen(listener, BACKLOG)?;
            listener.local_addr()?
        }
        None => to,
    };
    for _ in 0..attempts {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        if let Some(from) = &from {
            bind(&socket, from)?;
        }
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Ok(json!({ "remembered": remembered("count")? }))
}

/// A setting of the kernel's table of connections.
fn remembered(what: &str) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/sys/net/netfilter/nf_conntrack_{what}"))?;
    Ok(text.trim().parse().unwrap())
}

/// The sockets that this process has.
pub(crate) fn descriptors() -> Value {
    let links = (0..1024).filter_map(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).ok());
    json!(links.filter(|link| link.to_string_lossy().starts_with("socket:")).count())
}
