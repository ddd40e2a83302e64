use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;

/// Port that a datagram socket is connected to in order to ask for the route. Nothing is sent.
const ANY_PORT: u16 = 9;

/// What the kernel says where there is no way to an address, or none of its version at all.
const NO_ROUTE: [Errno; 6] = [
    Errno::ENETUNREACH,
    Errno::EHOSTUNREACH,
    Errno::EADDRNOTAVAIL,
    Errno::EAFNOSUPPORT,
    Errno::EACCES,
    Errno::EINVAL,
];

/// Whether `address` is this machine's own: on an interface now, or delivered to itself by its routes. An error where that can't be known.
pub(crate) fn is_own(address: IpAddr) -> io::Result<bool> {
    for interface in getifaddrs()? {
        let Some(own) = interface.address else { continue };
        let own = own
            .as_sockaddr_in()
            .map(|own| IpAddr::V4(own.ip()))
            .or_else(|| own.as_sockaddr_in6().map(|own| IpAddr::V6(own.ip())));
        if own == Some(address) {
            return Ok(true);
        }
    }
    is_routed_back(address)
}

/// Whole ranges can be a machine's own by a route alone; then the source that the kernel chooses is the address itself, or loopback.
/// No route is no way to itself.
fn is_routed_back(address: IpAddr) -> io::Result<bool> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| {
        socket.connect(SocketAddr::new(address, ANY_PORT))?;
        socket.local_addr()
    });
    match source {
        Ok(source) => Ok(source.ip() == address || source.ip().is_loopback()),
        Err(error) if NO_ROUTE.contains(&Errno::from_raw(error.raw_os_error().unwrap_or_default())) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
