use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::net::{TcpStream, UdpSocket};

use crate::address;
use crate::resolve::{Cached, Resolve, Upstream};

/// What the gateway stands on. Outside of this crate's tests there is one of each: the host's.
#[derive(Clone)]
pub(crate) struct Seams {
    pub(crate) origin: Arc<dyn Origin>,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) network: Arc<dyn Network>,
}

/// Where a connection was to go before it came here.
pub(crate) trait Origin: Send + Sync {
    fn of(&self, stream: &TcpStream) -> io::Result<SocketAddrV4>;

    /// The same of a datagram that was sent to `to`, which nothing translates.
    fn of_datagram(&self, to: Ipv4Addr) -> Ipv4Addr {
        to
    }
}

/// The way out.
#[async_trait]
pub(crate) trait Network: Send + Sync {
    async fn tcp(&self, to: SocketAddr) -> io::Result<TcpStream>;

    /// A socket that exchanges datagrams with `to` alone.
    async fn udp(&self, to: SocketAddr) -> io::Result<UdpSocket>;

    /// Whether the address is this machine's own.
    fn is_own(&self, address: IpAddr) -> io::Result<bool>;
}

impl Seams {
    pub(crate) fn of_host() -> Self {
        Self {
            origin: Arc::new(Nat),
            resolver: Arc::new(Cached::new(Upstream::of_host())),
            network: Arc::new(HostNetwork),
        }
    }
}

/// The kernel's record of what its packet filter translated.
struct Nat;

impl Origin for Nat {
    fn of(&self, stream: &TcpStream) -> io::Result<SocketAddrV4> {
        Ok(rustix::net::sockopt::ip_original_dst(stream)?)
    }
}

struct HostNetwork;

#[async_trait]
impl Network for HostNetwork {
    async fn tcp(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(to).await?;
        // What was no way to itself a moment ago may be one now.
        if stream.local_addr()?.ip() == to.ip() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the address is this machine's own"));
        }
        Ok(stream)
    }

    async fn udp(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(to).await?;
        Ok(socket)
    }

    fn is_own(&self, address: IpAddr) -> io::Result<bool> {
        address::is_own(address)
    }
}
