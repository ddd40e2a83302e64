//! Datagrams without a wait in the kernel: the sandbox holds copies of the sockets, and can take back that they don't wait.

use std::io;
use std::net::SocketAddr;

use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The next datagram, and who sent it.
pub(crate) async fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    let now = || {
        let (length, _, from) = recvfrom(socket, &mut *buffer, RecvFlags::DONTWAIT)?;
        let from = from.and_then(|from| from.try_into().ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok((length, from))
    };
    socket.async_io(Interest::READABLE, now).await
}

/// Sends a datagram as soon as there is room.
pub(crate) async fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
    let now = || Ok(sendto(socket, bytes, SendFlags::DONTWAIT, &to).map(drop)?);
    socket.async_io(Interest::WRITABLE, now).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn exchange() -> bool {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let copy = socket.try_clone().unwrap();
        let to = socket.local_addr().unwrap();
        let socket = UdpSocket::from_std(socket).unwrap();
        copy.set_nonblocking(false).unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        other.send_to(b"one", to).await.unwrap();
        let mut buffer = [0; 8];
        let (length, from) = receive(&socket, &mut buffer).await.unwrap();
        send(&socket, &buffer[..length], from).await.unwrap();
        assert_eq!(other.recv_from(&mut buffer).await.unwrap(), (3, to));
        timeout(Duration::from_millis(20), receive(&socket, &mut buffer)).await.is_err()
    }

    #[test]
    fn a_socket_that_is_told_to_wait_does_not() {
        let (told, heard) = std::sync::mpsc::channel();
        // A thread that hangs is left behind.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            told.send(runtime.block_on(exchange())).unwrap();
        });
        assert!(heard.recv_timeout(Duration::from_secs(10)).expect("the thread hangs"));
    }
}
