//! Memory of the host that connections may hold. The kernel counts it to nobody's limit: it is the gateway's, on behalf of the sandbox.

use std::os::fd::AsFd;

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

/// Connections that get much room each: a sandbox that has so few open is one that wants them fast.
const FEW: usize = 32;
/// Bytes that a socket may hold each way while there are few: what a path of 100 Mbit/s and 100 ms has under way. The kernel takes twice this with its
/// own books.
const LARGE: usize = 1 << 20;
/// The same once there are many.
const SMALL: usize = 32 << 10;
/// Bytes that the relay moves at once while there are few, and once there are many.
const LARGE_PIECE: usize = 128 << 10;
const SMALL_PIECE: usize = 16 << 10;

/// Bounds what a socket of a connection holds, now that so many are `open`. All of a sandbox' connections together hold some 500 MiB at the very most:
/// 32 times 4 queues of 2 MiB, and 992 times 4 queues of 64 KiB, where nobody reads at either end.
pub(crate) fn bound(socket: impl AsFd, open: usize) {
    let size = if open <= FEW { LARGE } else { SMALL };
    // Where that can't be said the kernel's own bounds hold.
    let _ = set_socket_recv_buffer_size(&socket, size);
    let _ = set_socket_send_buffer_size(&socket, size);
}

/// How much the relay moves at once.
pub(crate) fn piece(open: usize) -> usize {
    if open <= FEW { LARGE_PIECE } else { SMALL_PIECE }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};

    use super::*;

    #[test]
    fn what_a_connection_holds_is_bounded_and_less_with_many() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for (open, most) in [(1, 2 * LARGE), (FEW + 1, 2 * SMALL)] {
            bound(&socket, open);
            assert!(socket_recv_buffer_size(&socket).unwrap() <= most);
            assert!(socket_send_buffer_size(&socket).unwrap() <= most);
        }
        assert!(piece(1000) < piece(1));
    }
}
