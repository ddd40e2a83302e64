//! The sockets of the sandbox's network, made in its namespace. Allocation-free, see [`super::child`].

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, bind,
    listen, sendmsg, socket_with,
};

use super::PARKING;
use crate::network::{DNS_PORT, GATEWAY_ADDRESS, GATEWAY_PORT, SOCKETS};
use crate::sys;

/// Connections that wait to be accepted. More than a gateway leaves waiting; the kernel caps it by `net.core.somaxconn`.
const BACKLOG: i32 = 1024;
/// What the packet with the sockets holds besides them: two bytes, so that it is neither a word nor a report of failure.
pub(super) const WORD: &[u8; 2] = b"ns";

/// In the order of [`crate::network::NetworkSockets::in_order`].
pub(super) type Sockets = [OwnedFd; SOCKETS];

/// Makes them, parked high so that laying out the agent's descriptors overwrites none.
pub(super) fn open() -> Result<Sockets, Errno> {
    let mut sockets = [const { None }; SOCKETS];
    let mut places = sockets.iter_mut();
    let mut put = |socket: OwnedFd| -> Result<(), Errno> {
        *places.next().ok_or(Errno::MFILE)? = Some(fcntl_dupfd_cloexec(&socket, PARKING)?);
        Ok(())
    };
    put(listener(GATEWAY_PORT)?)?;
    let dns = datagrams()?;
    bind(&dns, &SocketAddrV4::new(GATEWAY_ADDRESS, DNS_PORT))?;
    put(dns)?;
    put(listener(DNS_PORT)?)?;
    // Without a protocol it is routing's.
    put(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?)?;
    for _ in 4..SOCKETS {
        let socket = datagrams()?;
        sys::tell_destinations(socket.as_fd())?;
        put(socket)?;
    }
    if sockets.iter().any(Option::is_none) {
        return Err(Errno::MFILE);
    }
    Ok(sockets.map(|socket| socket.unwrap_or_else(|| sys::exit(1))))
}

/// Hands copies to the parent.
pub(super) fn hand_out(sync: BorrowedFd<'_>, sockets: &Sockets) -> Result<(), Errno> {
    let borrowed: [BorrowedFd<'_>; SOCKETS] = std::array::from_fn(|at| sockets[at].as_fd());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(Errno::TOOBIG);
    }
    sendmsg(sync, &[IoSlice::new(WORD)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

fn listener(port: u16) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrV4::new(GATEWAY_ADDRESS, port))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn datagrams() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
}
