use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::sys;

/// A datagram that came to a socket of [`NetworkSockets::udp`](super::NetworkSockets::udp), without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// How long it is; more than the room for it means that it was cut.
    pub length: usize,
    /// Who sent it.
    pub from: SocketAddrV4,
    /// Where it was sent to.
    pub to: Ipv4Addr,
}

/// Takes the next datagram, without waiting: `WouldBlock` where there is none.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> std::io::Result<Datagram> {
    match sys::receive_datagram(socket.as_fd(), bytes)? {
        (length, Some(from), Some(to)) => Ok(Datagram { length, from, to }),
        // The kernel always tells both on such a socket; the agent can have changed that.
        _ => Err(Errno::PROTO.into()),
    }
}

/// Answers a datagram as if from where it was sent to, without waiting.
pub fn reply(socket: impl AsFd, bytes: &[u8], datagram: &Datagram) -> std::io::Result<usize> {
    Ok(sys::send_datagram(socket.as_fd(), bytes, datagram.from, datagram.to)?)
}
