use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, getsockname, sockopt};

use super::address::{DNS_PORT, GATEWAY_ADDRESS, GATEWAY_PORT, UDP_SOCKETS};

/// How many sockets there are, see [`NetworkSockets`].
pub const SOCKETS: usize = 4 + UDP_SOCKETS;

/// The sockets of a sandbox's network, made in its namespace and handed out. The agent holds the same ones, so that nothing
/// inside can take their ports while the gateway is away; what they do is therefore no more trusted than the agent.
///
/// A flag such as `O_NONBLOCK` is shared with the agent: a call that must not wait has to say so itself, and for an
/// `accept` there is no such word.
#[derive(Debug)]
pub struct NetworkSockets {
    /// Listens at [`GATEWAY_ADDRESS`] and [`GATEWAY_PORT`]: whatever TCP has a route arrives here.
    pub tcp: OwnedFd,
    /// At [`GATEWAY_ADDRESS`] and [`DNS_PORT`].
    pub dns_udp: OwnedFd,
    /// Listens at [`GATEWAY_ADDRESS`] and [`DNS_PORT`].
    pub dns_tcp: OwnedFd,
    /// For [`add_route`](super::add_route) and [`remove_route`](super::remove_route).
    pub routes: OwnedFd,
    /// [`UDP_SOCKETS`] of them, for whoever is outside to bind. They tell each datagram's destination, see
    /// [`receive`](super::receive()).
    pub udp: Vec<OwnedFd>,
}

impl NetworkSockets {
    /// From descriptors in the order of [`in_order`](Self::in_order), each of which is looked at. Those of a wrong set are
    /// closed; where they come from inside and closing may take its time, [`check`](Self::check) them before.
    pub fn checked(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        Self::check(&descriptors)?;
        let mut rest = descriptors.into_iter();
        let (Some(tcp), Some(dns_udp), Some(dns_tcp), Some(routes)) =
            (rest.next(), rest.next(), rest.next(), rest.next())
        else {
            return Err(wrong("too few sockets of a network"));
        };
        Ok(Self { tcp, dns_udp, dns_tcp, routes, udp: rest.collect() })
    }

    /// Whether these can be the sockets of a network, by number, kind and place, and closes each on exec. That they are in
    /// the sandbox's namespace is not looked at: nobody there can have one of another.
    pub fn check(descriptors: &[OwnedFd]) -> io::Result<()> {
        let [tcp, dns_udp, dns_tcp, routes, udp @ ..] = descriptors else {
            return Err(wrong(&format!("{} sockets of a network instead of {SOCKETS}", descriptors.len())));
        };
        if udp.len() != UDP_SOCKETS {
            return Err(wrong(&format!("{} sockets of a network instead of {SOCKETS}", descriptors.len())));
        }
        for descriptor in descriptors {
            rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
        }
        let at = |fd, port| is_at(fd, SocketAddrV4::new(GATEWAY_ADDRESS, port));
        let right = is_listener(tcp)?
            && at(tcp, GATEWAY_PORT)?
            && is_listener(dns_tcp)?
            && at(dns_tcp, DNS_PORT)?
            && is_datagram(dns_udp)?
            && at(dns_udp, DNS_PORT)?
            && is_routes(routes)?;
        if !right {
            return Err(wrong("a socket that is not the one of the network asked for"));
        }
        for socket in udp {
            if !is_datagram(socket)? {
                return Err(wrong("a socket that is no UDP socket of the network"));
            }
        }
        Ok(())
    }

    /// All of them in the one order in which they are handed over.
    pub fn in_order(&self) -> Vec<BorrowedFd<'_>> {
        let first = [&self.tcp, &self.dns_udp, &self.dns_tcp, &self.routes];
        first.into_iter().chain(&self.udp).map(AsFd::as_fd).collect()
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn is_listener(fd: &OwnedFd) -> io::Result<bool> {
    Ok(is_inet(fd, SocketType::STREAM)? && sockopt::socket_acceptconn(fd)?)
}

fn is_datagram(fd: &OwnedFd) -> io::Result<bool> {
    is_inet(fd, SocketType::DGRAM)
}

fn is_inet(fd: &OwnedFd, kind: SocketType) -> io::Result<bool> {
    let protocol =
        if kind == SocketType::STREAM { rustix::net::ipproto::TCP } else { rustix::net::ipproto::UDP };
    Ok(sockopt::socket_domain(fd)? == AddressFamily::INET
        && sockopt::socket_type(fd)? == kind
        && sockopt::socket_protocol(fd)? == Some(protocol))
}

/// The number of `NETLINK_ROUTE` is 0, which reads as no protocol.
fn is_routes(fd: &OwnedFd) -> io::Result<bool> {
    Ok(sockopt::socket_domain(fd)? == AddressFamily::NETLINK && sockopt::socket_protocol(fd)?.is_none())
}

fn is_at(fd: &OwnedFd, address: SocketAddrV4) -> io::Result<bool> {
    Ok(SocketAddrV4::try_from(getsockname(fd)?).is_ok_and(|own| own == address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> OwnedFd {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().into()
    }

    #[test]
    fn what_is_not_the_network_of_a_sandbox_is_refused() {
        assert!(NetworkSockets::checked(Vec::new()).is_err());
        let many = (0..SOCKETS).map(|_| listener()).collect();
        assert!(NetworkSockets::checked(many).is_err());
        let files = (0..SOCKETS).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect();
        assert!(NetworkSockets::checked(files).is_err());
    }
}
