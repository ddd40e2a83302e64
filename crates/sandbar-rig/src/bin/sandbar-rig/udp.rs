//! UDP at every address: DNS on its port, an echo on the others. An answer comes from the address that was asked.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::resolver::{self, Path};
use crate::state::State;

/// DNS.
const DNS: u16 = 53;
/// Largest packet.
const PACKET: usize = 65_535;
/// Answers under way at one socket.
const UNDER_WAY: usize = 1_024;

/// A socket for every address of one family.
pub(crate) fn open(any: IpAddr, port: u16) -> std::io::Result<UdpSocket> {
    let domain = if any.is_ipv4() { socket2::Domain::IPV4 } else { socket2::Domain::IPV6 };
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
    if any.is_ipv4() {
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
    } else {
        socket.set_only_v6(true)?;
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::new(any, port).into())?;
    UdpSocket::from_std(socket.into())
}

/// Serves until the rig ends.
pub(crate) async fn serve(socket: UdpSocket, state: Arc<State>) {
    let socket = Arc::new(socket);
    let room = Arc::new(Semaphore::new(UNDER_WAY));
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((packet, from, to)) = socket.async_io(Interest::READABLE, || receive(&socket)).await else {
            continue;
        };
        let (socket, state) = (Arc::clone(&socket), Arc::clone(&state));
        tasks.spawn(async move {
            let _permit = permit;
            let answer = if to.port() == DNS {
                resolver::answer(&state, &packet, Path { transport: "udp", from, to }).await
            } else {
                Some(packet)
            };
            if let Some(answer) = answer {
                // Who asked may be gone.
                let _ = socket.async_io(Interest::WRITABLE, || send(&socket, &answer, from, to.ip())).await;
            }
        });
    }
}

fn receive(socket: &UdpSocket) -> std::io::Result<(Vec<u8>, SocketAddr, SocketAddr)> {
    let mut packet = vec![0; PACKET];
    let mut control = nix::cmsg_space!(libc::in6_pktinfo);
    let mut parts = [IoSliceMut::new(&mut packet)];
    let received =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty())?;
    let to = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(IpAddr::V4(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes())))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr))),
        _ => None,
    });
    let from = received.address.and_then(|address| standard(&address));
    let length = received.bytes;
    let (Some(to), Some(from)) = (to, from) else {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "a packet without addresses"));
    };
    packet.truncate(length);
    Ok((packet, from, SocketAddr::new(to, socket.local_addr()?.port())))
}

fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr, from: IpAddr) -> std::io::Result<()> {
    let parts = [IoSlice::new(bytes)];
    let address = SockaddrStorage::from(to);
    let flags = MsgFlags::empty();
    match from {
        IpAddr::V4(from) => {
            let source = libc::in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: source,
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            sendmsg(
                socket.as_raw_fd(),
                &parts,
                &[ControlMessage::Ipv4PacketInfo(&info)],
                flags,
                Some(&address),
            )?;
        }
        IpAddr::V6(from) => {
            let source = libc::in6_addr { s6_addr: from.octets() };
            let info = libc::in6_pktinfo { ipi6_addr: source, ipi6_ifindex: 0 };
            sendmsg(
                socket.as_raw_fd(),
                &parts,
                &[ControlMessage::Ipv6PacketInfo(&info)],
                flags,
                Some(&address),
            )?;
        }
    }
    Ok(())
}

fn standard(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}
