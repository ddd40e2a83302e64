//! Ways out that are asked of the kernel itself.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroU32;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recvfrom, sendto, socket_with,
    sockopt,
};
use rustix::thread::LinkNameSpaceType;

use super::attempt::{Expect, Raw, SocketKind};
use super::dns::unspecified;
use super::reply::{self, End};
use super::tcp::is_timeout;
use super::tried::{Outcome, Said, failed};

/// How long an answer to a datagram may take.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long the kernel may take to answer about its own tables.
const KERNEL: Duration = Duration::from_secs(2);
/// The type of a netlink message that carries an error, or none (`NLMSG_ERROR`).
const NETLINK_ERROR: u16 = 2;

/// A datagram and its answer.
pub(super) fn udp(to: SocketAddr, send: &[u8]) -> Said {
    let socket = match UdpSocket::bind(unspecified(to)) {
        Ok(socket) => socket,
        Err(cause) => return failed("bind", &cause),
    };
    // Where nothing sends to many by itself, it may still be asked for.
    let _ = socket.set_broadcast(true);
    let mut buffer = [0; 2048];
    let asked = socket
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| socket.send_to(send, to))
        .and_then(|_| socket.recv_from(&mut buffer));
    said_of_datagram(asked.map(|(count, _)| count))
}

/// A socket of another kind.
pub(super) fn socket(kind: &SocketKind) -> Said {
    let protocol = NonZeroU32::new(kind.protocol).map(Protocol::from_raw);
    let family = AddressFamily::from_raw(kind.family);
    let socket = match socket_with(family, SocketType::from_raw(kind.kind), SocketFlags::CLOEXEC, protocol) {
        Ok(socket) => socket,
        Err(cause) => return failed("socket", &cause.into()),
    };
    let Some((to, Raw(bytes))) = &kind.ask else {
        return (Outcome::Reached, "the kernel gives such a socket".to_owned());
    };
    let mut buffer = [0; 2048];
    let asked = sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))
        .and_then(|()| sendto(&socket, bytes, SendFlags::empty(), to))
        .and_then(|_| recvfrom(&socket, &mut buffer[..], RecvFlags::empty()))
        .map(|(count, ..)| count);
    said_of_datagram(asked.map_err(Into::into))
}

fn said_of_datagram(asked: io::Result<usize>) -> Said {
    match asked {
        Ok(count) => (Outcome::Reached, format!("{count} bytes came back")),
        Err(cause) if is_timeout(&cause) => (Outcome::Refused, "sent, and nothing came back".to_owned()),
        Err(cause) => failed("send", &cause),
    }
}

/// Asks for a change of routes, addresses, links or rules.
pub(super) fn route(message: &[u8]) -> Said {
    let socket = match socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None) {
        Ok(socket) => socket,
        Err(cause) => return failed("socket", &cause.into()),
    };
    let mut buffer = [0; 4096];
    let asked = sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(KERNEL))
        .and_then(|()| sendto(&socket, message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)))
        .and_then(|_| recvfrom(&socket, &mut buffer[..], RecvFlags::empty()))
        .map(|(count, ..)| count);
    let count = match asked.map_err(io::Error::from) {
        Ok(count) => count,
        Err(cause) => return failed("send", &cause),
    };
    match netlink_error(&buffer[..count]) {
        Some(0) => (Outcome::Reached, "the kernel did it".to_owned()),
        Some(code) => failed("ask the kernel", &io::Error::from_raw_os_error(code)),
        None => (Outcome::Unclear, "the kernel's answer says neither".to_owned()),
    }
}

/// The error number in an answer, 0 where there was none.
fn netlink_error(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NETLINK_ERROR).then_some(code.checked_neg()?)
}

/// A socket of the host that answers with the token.
pub(super) fn unix(path: Option<&Path>, name: Option<&Raw>, token: &Raw) -> Said {
    let connected = match (path, name) {
        (Some(path), _) => UnixStream::connect(path),
        (None, Some(Raw(name))) => std::os::unix::net::SocketAddr::from_abstract_name(name)
            .and_then(|address| UnixStream::connect_addr(&address)),
        (None, None) => return (Outcome::Unclear, "no socket is named".to_owned()),
    };
    let mut stream = match connected {
        Ok(stream) => stream,
        Err(cause) => return failed("connect", &cause),
    };
    let mut answer = vec![0; token.0.len()];
    let read = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.read_exact(&mut answer));
    let end = if read.is_err() { End::Closed } else { End::Silent };
    let answer = if read.is_ok() { &answer[..] } else { &[] };
    reply::judge(&Expect::Token(token.clone()), answer, end)
}

/// A file that is a way out by itself.
pub(super) fn open(path: &Path) -> Said {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => (Outcome::Reached, "it can be opened".to_owned()),
        Err(cause) => failed("open", &cause),
    }
}

/// A place that is somebody else's.
pub(super) fn bind(to: SocketAddr) -> Said {
    match TcpListener::bind(to) {
        Ok(_) => (Outcome::Reached, "the place can be taken".to_owned()),
        Err(cause) => failed("bind", &cause),
    }
}

/// Descriptors that nobody gave on purpose: sockets, and files of the host. The three standard ones are pipes, `/dev/null` or a terminal.
pub(super) fn inherited() -> Said {
    let own = match std::fs::read_dir("/proc/self/fd") {
        Ok(own) => own,
        Err(cause) => return (Outcome::Unclear, failed("/proc/self/fd", &cause).1),
    };
    for entry in own.filter_map(Result::ok) {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let name = target.to_string_lossy().into_owned();
        let is_own = name.starts_with("pipe:") || name.starts_with("/dev/") || name.starts_with("/proc/");
        if !is_own {
            return (Outcome::Reached, format!("a program starts with `{name}`"));
        }
    }
    if rustix::process::geteuid().is_root() {
        // Root may look at the first process; that it holds nothing of the host is that process' own matter.
        return (Outcome::Refused, "none".to_owned());
    }
    match std::fs::read_dir("/proc/1/fd").map(Iterator::count) {
        Ok(count) if count > 0 => {
            (Outcome::Reached, "the descriptors of the first process can be seen".to_owned())
        }
        Ok(_) => (Outcome::Refused, "none, and none of the first process".to_owned()),
        Err(cause) => failed("none of its own; /proc/1/fd", &cause),
    }
}

/// Into another network.
pub(super) fn enter(path: &Path) -> Said {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(cause) => return failed("open", &cause),
    };
    let moved = rustix::thread::move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&file),
        Some(LinkNameSpaceType::Network),
    );
    match moved {
        Ok(()) => (Outcome::Reached, "it can be entered".to_owned()),
        Err(cause) => failed("setns", &cause.into()),
    }
}
