use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;

use nix::libc::{in_addr, in_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt, sockopt,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// A datagram that came.
pub(super) struct Packet {
    pub(super) length: usize,
    /// Who sent it.
    pub(super) from: SocketAddrV4,
    /// The address that it was sent to.
    pub(super) to: Ipv4Addr,
}

/// From now on each datagram tells the address that it was sent to.
pub(super) fn tell_destinations(socket: &UdpSocket) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?)
}

/// The next datagram; none where one came that does not tell all of that.
pub(super) async fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
    socket.async_io(Interest::READABLE, || receive_now(socket, buffer)).await
}

fn receive_now(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
    let mut slices = [IoSliceMut::new(buffer)];
    let mut space = nix::cmsg_space!(in_pktinfo);
    let message =
        recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_DONTWAIT)?;
    let to = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4PacketInfo(info) => Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes())),
        _ => None,
    });
    let is_whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
    let packet = match (message.address, to) {
        (Some(from), Some(to)) if is_whole => {
            Some(Packet { length: message.bytes, from: SocketAddrV4::new(from.ip(), from.port()), to })
        }
        _ => None,
    };
    Ok(packet)
}

/// Sends a datagram that comes from `from`, unless there is no room for it now: then it is lost, as datagrams are.
pub(super) fn send(socket: &UdpSocket, bytes: &[u8], from: Ipv4Addr, to: SocketAddrV4) -> io::Result<()> {
    let nowhere = in_addr { s_addr: 0 };
    let source = in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
    let info = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: nowhere };
    let control = [ControlMessage::Ipv4PacketInfo(&info)];
    let to = SockaddrIn::from(to);
    sendmsg(socket.as_raw_fd(), &[IoSlice::new(bytes)], &control, MsgFlags::MSG_DONTWAIT, Some(&to))?;
    Ok(())
}
