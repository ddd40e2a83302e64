use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use super::attempt::{HostPlace, TcpAttempt};
use super::dns;
use super::reply::{self, End};
use super::tried::{Outcome, Said, failed};

/// How long a connection may take: a wall answers at once, and a far side within some round trips.
const CONNECT: Duration = Duration::from_secs(3);
/// Most bytes of an answer that are read: more than any answer that is waited for.
const MAX_ANSWER: usize = 256 * 1024;
/// `MSG_FASTOPEN` of `sendto(2)`.
const FAST_OPEN: u32 = 0x2000_0000;

/// Connects, says what is to be said, and reads what comes back.
pub(super) fn attempt(order: &TcpAttempt) -> Said {
    let address = match &order.to {
        HostPlace::Address(address) => *address,
        HostPlace::Name(name) => match dns::resolve(name) {
            Ok(address) => address,
            Err(said) => return said,
        },
    };
    let (outcome, detail) = speak(SocketAddr::new(address, order.port), order);
    match order.to {
        HostPlace::Address(_) => (outcome, detail),
        HostPlace::Name(_) => (outcome, format!("at {address}: {detail}")),
    }
}

fn speak(to: SocketAddr, order: &TcpAttempt) -> Said {
    let mut pieces = order.send.iter();
    let opened = if order.fast_open {
        let first = pieces.next().map_or(&[][..], |piece| &piece.bytes.0);
        open_fast(to, first)
    } else {
        TcpStream::connect_timeout(&to, CONNECT)
    };
    let stream = match opened {
        Ok(stream) => stream,
        Err(cause) if is_timeout(&cause) => return (Outcome::Refused, "connect: timed out".to_owned()),
        Err(cause) => return failed("connect", &cause),
    };
    let until = Instant::now() + Duration::from_millis(order.patience_ms);
    let _ = stream.set_nodelay(true);
    let mut answer = Vec::new();
    for piece in pieces {
        // The pace of a slow sender is what is tried. It ends when the other side does.
        let pause = Duration::from_millis(piece.after_ms);
        if !pause.is_zero()
            && let Some(end) = read(&stream, order, &mut answer, Instant::now() + pause)
            && end != End::Silent
        {
            return reply::judge(&order.expect, &answer, end);
        }
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        if stream.set_write_timeout(Some(left)).is_err() || (&stream).write_all(&piece.bytes.0).is_err() {
            // What the other side said before it closed still counts.
            break;
        }
    }
    let end = read(&stream, order, &mut answer, until).unwrap_or(End::Closed);
    reply::judge(&order.expect, &answer, end)
}

/// Reads until the answer is settled (`None`), the other side ends, or the time is up.
fn read(mut stream: &TcpStream, order: &TcpAttempt, answer: &mut Vec<u8>, until: Instant) -> Option<End> {
    let mut buffer = [0; 8192];
    loop {
        if reply::is_settled(&order.expect, answer) || answer.len() >= MAX_ANSWER {
            return None;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Some(End::Silent);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Some(End::Closed),
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) if is_timeout(&cause) => return Some(End::Silent),
            Err(_) => return Some(End::Reset),
        }
    }
}

/// A connection whose first packet carries data, where the kernel has seen the other side's cookie before; else an ordinary one.
fn open_fast(to: SocketAddr, first: &[u8]) -> io::Result<TcpStream> {
    let family = match to.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(CONNECT))?;
    rustix::net::sendto(&stream, first, SendFlags::from_bits_retain(FAST_OPEN), &to)?;
    Ok(stream)
}

pub(super) fn is_timeout(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
