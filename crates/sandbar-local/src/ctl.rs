//! The client of the agent's control protocol. What the agent says is hostile: sizes, numbers and kinds are checked.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, send, socket_with, sockopt,
};
use serde::{Deserialize, Serialize};

use crate::descriptor;
use crate::home::Folder;

/// Longest packet, in bytes (decision 0006).
const MAX_PACKET: usize = 64 << 10;
/// Most descriptors in a packet: `listeners` has two.
const MAX_DESCRIPTORS: usize = 2;
/// How long an answer may take. `dial` waits for a connection on loopback, which is made at once or not at all.
const BOUND: Duration = Duration::from_secs(5);

/// What the agent can be asked.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Op {
    /// A connection to a port.
    Dial { port: u16 },
    /// Another deadline, in Unix milliseconds.
    Deadline { unix_ms: Option<i64> },
    /// Its listeners.
    Listeners,
    /// A signal to every process but the agent.
    KillAll { signal: i32 },
    /// The end of everything.
    Shutdown,
}

#[derive(Serialize)]
struct Request<'a> {
    v: u32,
    #[serde(flatten)]
    op: &'a Op,
}

#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    error: Option<String>,
}

/// What came of a question.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was done; these came with it.
    Done(Vec<OwnedFd>),
    /// The agent says no.
    No(String),
}

/// Why there was no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody listens: the agent is gone.
    Gone,
    /// Anything else.
    Other(std::io::Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone => f.write_str("the agent does not listen any more"),
            Self::Other(cause) => cause.fmt(f),
        }
    }
}

impl From<Errno> for Failure {
    fn from(cause: Errno) -> Self {
        match cause {
            Errno::CONNREFUSED | Errno::NOENT | Errno::CONNRESET | Errno::PIPE => Self::Gone,
            _ => Self::Other(cause.into()),
        }
    }
}

/// Asks the agent of the sandbox in `folder`.
pub(crate) async fn ask(folder: &Folder, op: &Op) -> Result<Outcome, Failure> {
    match tokio::time::timeout(BOUND, exchange(folder, op)).await {
        Ok(outcome) => outcome,
        Err(_) => {
            Err(Failure::Other(std::io::Error::other(format!("no answer within {} s", BOUND.as_secs()))))
        }
    }
}

/// Tells the agent to end everything, without a runtime and without waiting for an answer. `false` means that nobody listens.
pub(crate) fn tell_shutdown(folder: &Folder) -> bool {
    match dial(folder) {
        Ok(socket) => {
            let _ = send(&socket, &packet(&Op::Shutdown), SendFlags::NOSIGNAL);
            true
        }
        // A full backlog is somebody, too.
        Err(Errno::AGAIN) => true,
        Err(_) => false,
    }
}

async fn exchange(folder: &Folder, op: &Op) -> Result<Outcome, Failure> {
    let socket = loop {
        match dial(folder) {
            Ok(socket) => break socket,
            // The queue of connections is full: the agent is busy. The caller's bound ends this.
            Err(Errno::AGAIN) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(cause) => return Err(cause.into()),
        }
    };
    send(&socket, &packet(op), SendFlags::NOSIGNAL)?;
    let socket = descriptor::watch(socket).map_err(Failure::Other)?;
    loop {
        let mut ready = socket.readable().await.map_err(Failure::Other)?;
        match receive(socket.get_ref()) {
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(cause) => return Err(cause.into()),
            Ok((bytes, descriptors)) => return read(&bytes, descriptors),
        }
    }
}

fn dial(folder: &Folder) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(folder.socket(crate::shim::CTL_SOCKET))?)?;
    Ok(socket)
}

fn packet(op: &Op) -> Vec<u8> {
    serde_json::to_vec(&Request { v: 1, op }).unwrap_or_default()
}

fn receive(socket: &OwnedFd) -> rustix::io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MAX_PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let got = recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if got.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE);
    }
    bytes.truncate(got.bytes);
    Ok((bytes, descriptors))
}

fn read(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Result<Outcome, Failure> {
    let answer: Answer = serde_json::from_slice(bytes)
        .map_err(|_| Failure::Other(std::io::Error::other("the agent's answer is not of the protocol")))?;
    if answer.ok {
        Ok(Outcome::Done(descriptors))
    } else {
        let why: String =
            answer.error.unwrap_or_default().chars().filter(|c| !c.is_control()).take(200).collect();
        Ok(Outcome::No(why))
    }
}

/// Checks that what came from inside is one connection to loopback and nothing else.
pub(crate) fn checked_connection(descriptors: Vec<OwnedFd>) -> std::io::Result<std::net::TcpStream> {
    let [socket] = <[OwnedFd; 1]>::try_from(descriptors)
        .map_err(|given| std::io::Error::other(format!("{} descriptors instead of one", given.len())))?;
    let domain = sockopt::socket_domain(&socket)?;
    let is_stream = sockopt::socket_type(&socket)? == SocketType::STREAM;
    let is_tcp = sockopt::socket_protocol(&socket)? == Some(rustix::net::ipproto::TCP);
    if !matches!(domain, AddressFamily::INET | AddressFamily::INET6) || !is_stream || !is_tcp {
        return Err(std::io::Error::other("a descriptor that is no TCP connection"));
    }
    let stream = std::net::TcpStream::from(socket);
    let loopback = match stream.peer_addr()?.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    };
    if !loopback {
        return Err(std::io::Error::other("a connection that does not lead to loopback"));
    }
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Checks that what came from inside are Unix listeners: of the guest protocol and of the control protocol.
pub(crate) fn checked_listeners(descriptors: &[OwnedFd]) -> std::io::Result<()> {
    let [agent, ctl] = descriptors else {
        return Err(std::io::Error::other(format!("{} listeners instead of two", descriptors.len())));
    };
    for (socket, kind) in [(agent, SocketType::STREAM), (ctl, SocketType::SEQPACKET)] {
        let fine = sockopt::socket_domain(socket)? == AddressFamily::UNIX
            && sockopt::socket_type(socket)? == kind
            && sockopt::socket_acceptconn(socket)?;
        if !fine {
            return Err(std::io::Error::other("a descriptor that is not the listener asked for"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn only_a_connection_to_loopback_passes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        checked_connection(vec![stream().into()]).unwrap();
        assert!(checked_connection(vec![]).is_err());
        assert!(checked_connection(vec![stream().into(), stream().into()]).is_err());
        assert!(checked_connection(vec![UdpSocket::bind("127.0.0.1:0").unwrap().into()]).is_err());
        assert!(checked_connection(vec![std::fs::File::open("/dev/null").unwrap().into()]).is_err());
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(checked_connection(vec![unix.into()]).is_err());
    }

    #[test]
    fn only_the_two_listeners_pass() {
        let scratch = tempfile::tempdir().unwrap();
        let stream: OwnedFd =
            std::os::unix::net::UnixListener::bind(scratch.path().join("a")).unwrap().into();
        let tcp: OwnedFd = TcpListener::bind("127.0.0.1:0").unwrap().into();
        assert!(checked_listeners(&[stream, tcp]).is_err());
        assert!(checked_listeners(&[]).is_err());
    }

    #[test]
    fn an_answer_that_is_not_of_the_protocol_is_an_error() {
        assert!(matches!(read(b"{}", vec![]), Err(Failure::Other(_))));
        assert!(matches!(read(br#"{"ok":true}"#, vec![]), Ok(Outcome::Done(_))));
        match read(b"{\"ok\":false,\"error\":\"refused\"}", vec![]) {
            Ok(Outcome::No(why)) => assert_eq!(why, "refused"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn questions_have_the_form_of_the_decision() {
        assert_eq!(packet(&Op::Dial { port: 80 }), br#"{"v":1,"op":"dial","port":80}"#);
        assert_eq!(packet(&Op::KillAll { signal: 9 }), br#"{"v":1,"op":"kill_all","signal":9}"#);
    }
}
