use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketType, getpeername, recv, send, sockopt,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use super::{AT_ONCE, Received, aside};
use crate::descriptor;

/// A connection to a port inside that the agent made and handed over; it may have kept a twin.
#[derive(Debug)]
pub(crate) struct Tcp {
    socket: Option<AsyncFd<OwnedFd>>,
    place: Option<OwnedSemaphorePermit>,
}

impl Tcp {
    /// Checks that what came is one connection to loopback and nothing else. It keeps `place` until it is closed.
    pub(crate) fn checked(mut received: Received, place: OwnedSemaphorePermit) -> io::Result<Self> {
        let count = received.len();
        match received.as_slice() {
            [socket] => check(socket)?,
            _ => return Err(io::Error::other(format!("{count} descriptors instead of one"))),
        }
        let Some(socket) = received.take_only() else { return Err(io::Error::other("no descriptor")) };
        // Small answers shall not wait for more.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        Ok(Self { socket: Some(descriptor::watch(socket)?), place: Some(place) })
    }

    fn socket(&self) -> io::Result<&AsyncFd<OwnedFd>> {
        self.socket.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
    }
}

fn check(socket: &OwnedFd) -> io::Result<()> {
    let domain = sockopt::socket_domain(socket)?;
    let is_stream = sockopt::socket_type(socket)? == SocketType::STREAM;
    let is_tcp = sockopt::socket_protocol(socket)? == Some(rustix::net::ipproto::TCP);
    if !matches!(domain, AddressFamily::INET | AddressFamily::INET6) || !is_stream || !is_tcp {
        return Err(io::Error::other("a descriptor that is no TCP connection"));
    }
    let peer = std::net::SocketAddr::try_from(getpeername(socket)?.ok_or(Errno::NOTCONN)?)?;
    let loopback = match peer.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    };
    if loopback { Ok(()) } else { Err(io::Error::other("a connection that does not lead to loopback")) }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            aside::close(vec![socket.into_inner()], self.place.take());
        }
    }
}

impl AsyncRead for Tcp {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buf.remaining().min(AT_ONCE);
        let socket = self.socket()?;
        loop {
            let mut ready = ready!(socket.poll_read_ready(cx))?;
            match recv(socket.get_ref(), buf.initialize_unfilled_to(room), RecvFlags::DONTWAIT) {
                Ok((got, _)) => {
                    buf.advance(got);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(cause) => return Poll::Ready(Err(cause.into())),
            }
        }
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let socket = self.socket()?;
        loop {
            let mut ready = ready!(socket.poll_write_ready(cx))?;
            match send(socket.get_ref(), buf, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => return Poll::Ready(Ok(sent)),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(cause) => return Poll::Ready(Err(cause.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match rustix::net::shutdown(self.socket()?.get_ref(), Shutdown::Write) {
            // The other side ended it already.
            Ok(()) | Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(cause) => Poll::Ready(Err(cause.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Semaphore;

    use super::*;

    async fn checked(descriptors: Vec<OwnedFd>) -> io::Result<Tcp> {
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        Tcp::checked(descriptors.into(), place)
    }

    #[tokio::test]
    async fn only_a_connection_to_loopback_passes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        checked(vec![stream().into()]).await.unwrap();
        assert!(checked(vec![]).await.is_err());
        assert!(checked(vec![stream().into(), stream().into()]).await.is_err());
        assert!(checked(vec![UdpSocket::bind("127.0.0.1:0").unwrap().into()]).await.is_err());
        assert!(checked(vec![std::fs::File::open("/dev/null").unwrap().into()]).await.is_err());
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(checked(vec![unix.into()]).await.is_err());
    }

    #[tokio::test]
    async fn a_twin_that_makes_it_block_stops_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let twin = stream.try_clone().unwrap();
        let mut inside = checked(vec![stream.into()]).await.unwrap();
        // The flag is shared; and a reader that takes the bytes away leaves a readiness that is none.
        twin.set_nonblocking(false).unwrap();
        std::io::Write::write_all(&mut other, b"ab").unwrap();
        let mut byte = [0; 1];
        inside.read_exact(&mut byte).await.unwrap();
        std::io::Read::read_exact(&mut &twin, &mut byte).unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(50), inside.read(&mut byte)).await;
        assert!(waiting.is_err(), "there is nothing to read");
        let big = vec![0; 16 << 20];
        let waiting = tokio::time::timeout(Duration::from_millis(50), inside.write_all(&big)).await;
        assert!(waiting.is_err(), "nobody reads that much");
    }
}
