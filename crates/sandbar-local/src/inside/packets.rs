use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::Shutdown;
use tokio::io::unix::AsyncFd;

use super::aside;
use crate::descriptor;

/// A conversation in packets with the agent, closed aside: packets may be waiting in it, and one without bytes looks like the end.
#[derive(Debug)]
pub(crate) struct Packets(Option<OwnedFd>);

impl Packets {
    /// Takes over a connected socket.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(Some(socket))
    }

    /// A second descriptor of it to wait for.
    pub(crate) fn watch(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let Some(socket) = &self.0 else { return Err(io::ErrorKind::NotConnected.into()) };
        descriptor::watch(rustix::io::fcntl_dupfd_cloexec(socket, 3)?)
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        if let Some(socket) = self.0.take() {
            let _ = rustix::net::shutdown(socket.as_fd(), Shutdown::Both);
            aside::close(vec![socket], None);
        }
    }
}
