//! Sees every packet that comes from the host and begins something, whether or not anybody listens for it.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, poll};
use sandbar_rig::wire::Arrival;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::ledger::{HEAD, Ledger, lock};

/// Bytes that the kernel may keep for us.
const BUFFER: usize = 32 * 1024 * 1024;
/// Bytes of a packet that are looked at.
const SNAP: u32 = 512;
/// `ETH_P_ALL`: every protocol.
const ALL: u16 = 3;

const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const GRE: u8 = 47;
const ICMP: u8 = 1;
const IGMP: u8 = 2;
const ICMP6: u8 = 58;
const SCTP: u8 = 132;

/// A socket that gets a copy of what arrives.
#[derive(Debug)]
pub(crate) struct Capture {
    socket: Socket,
    /// Reading and writing down are one step, so that a packet is in the ledger once a later reader found the socket empty.
    reading: Mutex<()>,
    ledger: Arc<Ledger>,
}

impl Capture {
    /// Opens the socket; before there is a link, so that nothing comes before the filter.
    pub(crate) fn open(ledger: Arc<Ledger>) -> std::io::Result<Arc<Self>> {
        let protocol = Protocol::from(i32::from(ALL.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
        socket.attach_filter(&filter())?;
        socket.set_recv_buffer_size(BUFFER)?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        socket.set_nonblocking(true)?;
        let capture = Arc::new(Self { socket, reading: Mutex::new(()), ledger });
        let watcher = Arc::clone(&capture);
        std::thread::Builder::new().name("capture".to_owned()).spawn(move || {
            loop {
                let _ = poll(&mut [PollFd::new(&watcher.socket, PollFlags::IN)], None);
                watcher.drain();
            }
        })?;
        Ok(capture)
    }

    /// Writes down all that has arrived up to now.
    pub(crate) fn drain(&self) {
        let _reading = lock(&self.reading);
        let mut packet = [0; SNAP as usize];
        loop {
            match self.receive(&mut packet) {
                Ok((length, lost)) => {
                    if lost > 0 {
                        self.ledger.lost();
                    }
                    if let Some(arrival) = parse(&packet[..length]) {
                        self.ledger.arrival(|seq| Arrival { seq, ..arrival });
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // The link went down.
                Err(e) if e.raw_os_error() == Some(libc::ENETDOWN) => {}
                Err(_) => {
                    self.ledger.lost();
                    return;
                }
            }
        }
    }

    /// The next packet's length, and how many the kernel had no room for before it.
    fn receive(&self, packet: &mut [u8]) -> std::io::Result<(usize, u32)> {
        let mut control = nix::cmsg_space!(u32);
        let mut parts = [IoSliceMut::new(packet)];
        let received =
            recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty())?;
        let lost = received.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::RxqOvfl(lost) => Some(lost),
            _ => None,
        });
        Ok((received.bytes, lost.unwrap_or_default()))
    }
}

/// Lets through what is incoming IP and is not in the middle of a TCP connection, so that large transfers do not fill the buffer.
fn filter() -> [SockFilter; 19] {
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_WORD: u16 = 0x20;
    const LOAD_BYTE_AT_X: u16 = 0x50;
    const HEADER_LENGTH_TO_X: u16 = 0xb1;
    const AND: u16 = 0x54;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    // `SKF_AD_OFF + SKF_AD_PKTTYPE`, and `PACKET_OUTGOING`.
    const DIRECTION: u32 = 0xffff_f004;
    const OUTGOING: u32 = 4;
    // SYN and ACK among the flags, and SYN alone.
    const SYN_ACK: u32 = 0x12;
    const SYN: u32 = 0x02;
    let op = SockFilter::new;
    [
        op(LOAD_WORD, 0, 0, DIRECTION),
        op(JUMP_EQUAL, 16, 0, OUTGOING), // to drop
        op(LOAD_BYTE, 0, 0, 0),
        op(AND, 0, 0, 0xf0),
        op(JUMP_EQUAL, 1, 0, 0x40),  // IPv4, else
        op(JUMP_EQUAL, 6, 12, 0x60), // IPv6, else drop
        op(LOAD_BYTE, 0, 0, 9),
        op(JUMP_EQUAL, 0, 9, u32::from(TCP)), // else accept
        op(HEADER_LENGTH_TO_X, 0, 0, 0),
        op(LOAD_BYTE_AT_X, 0, 0, 13),
        op(AND, 0, 0, SYN_ACK),
        op(JUMP_EQUAL, 5, 6, SYN), // accept, else drop
        op(LOAD_BYTE, 0, 0, 6),
        op(JUMP_EQUAL, 0, 3, u32::from(TCP)), // else accept
        op(LOAD_BYTE, 0, 0, 53),
        op(AND, 0, 0, SYN_ACK),
        op(JUMP_EQUAL, 0, 1, SYN), // accept, else drop
        op(RETURN, 0, 0, SNAP),
        op(RETURN, 0, 0, 0),
    ]
}

fn parse(packet: &[u8]) -> Option<Arrival> {
    let (from, to, protocol, rest): (IpAddr, IpAddr, u8, &[u8]) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 0xf) * 4;
            let from: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            let to: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            (Ipv4Addr::from(from).into(), Ipv4Addr::from(to).into(), packet[9], packet.get(header..)?)
        }
        6 => {
            let from: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            let to: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            let (protocol, rest) = skip_extensions(packet[6], packet.get(40..)?)?;
            (Ipv6Addr::from(from).into(), Ipv6Addr::from(to).into(), protocol, rest)
        }
        _ => return None,
    };
    if housekeeping(to, protocol, rest) {
        return None;
    }
    let ports = matches!(protocol, TCP | UDP | DCCP | SCTP);
    let port = rest.get(2..4).filter(|_| ports).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let header = match protocol {
        TCP => usize::from(rest.get(12).copied().unwrap_or_default() >> 4) * 4,
        UDP => 8,
        _ => 0,
    };
    let body = rest.get(header..).unwrap_or_default();
    let head = body[..body.len().min(HEAD)].to_vec();
    let protocol = match protocol {
        TCP => "tcp".to_owned(),
        UDP => "udp".to_owned(),
        ICMP => "icmp".to_owned(),
        ICMP6 => "icmpv6".to_owned(),
        SCTP => "sctp".to_owned(),
        DCCP => "dccp".to_owned(),
        GRE => "gre".to_owned(),
        other => other.to_string(),
    };
    Some(Arrival { seq: 0, protocol, from, to, port, head })
}

/// Hop-by-hop, routing, fragment and destination options.
fn skip_extensions(mut protocol: u8, mut rest: &[u8]) -> Option<(u8, &[u8])> {
    while matches!(protocol, 0 | 43 | 44 | 60) {
        let length = if protocol == 44 { 8 } else { (usize::from(*rest.get(1)?) + 1) * 8 };
        protocol = *rest.first()?;
        rest = rest.get(length..)?;
    }
    Some((protocol, rest))
}

/// What the host's own kernel sends to keep a link: neighbour discovery and reports of multicast listeners.
fn housekeeping(to: IpAddr, protocol: u8, rest: &[u8]) -> bool {
    let kind = rest.first().copied().unwrap_or_default();
    match protocol {
        IGMP => to.is_multicast(),
        ICMP6 => matches!(kind, 130..=137 | 143),
        _ => false,
    }
}
