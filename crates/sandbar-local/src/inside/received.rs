use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use tokio::sync::OwnedSemaphorePermit;

use super::aside;

/// Most descriptors of one message: `SCM_MAX_FD` of the kernel.
pub(crate) const MAX_DESCRIPTORS: usize = 253;

/// Descriptors that came from inside. Those that nobody took are closed aside.
#[derive(Debug, Default)]
pub(crate) struct Received {
    descriptors: Vec<OwnedFd>,
    place: Option<OwnedSemaphorePermit>,
}

impl Received {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// What they are.
    pub(crate) fn as_slice(&self) -> &[OwnedFd] {
        &self.descriptors
    }

    /// Keeps a place among those that there may be until all are closed.
    pub(crate) fn holding(mut self, place: Option<OwnedSemaphorePermit>) -> Self {
        self.place = place;
        self
    }

    /// All of them, whose place is given back.
    pub(crate) fn take_all(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// The only one; `None`, and they stay, if there are none or several.
    pub(super) fn take_only(&mut self) -> Option<OwnedFd> {
        if self.descriptors.len() == 1 { self.descriptors.pop() } else { None }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        aside::close(std::mem::take(&mut self.descriptors), self.place.take());
    }
}

#[cfg(test)]
impl From<Vec<OwnedFd>> for Received {
    fn from(descriptors: Vec<OwnedFd>) -> Self {
        Self { descriptors, place: None }
    }
}

/// Reads one message, or part of a stream, without waiting, and with room for all descriptors that can come along.
pub(crate) fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
) -> rustix::io::Result<(usize, ReturnFlags, Received)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?;
    let mut received = Received::default();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            received.descriptors.extend(rights);
        }
    }
    received.descriptors.iter().for_each(aside::unlinger);
    Ok((got.bytes, got.flags, received))
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
        sendmsg, socketpair, sockopt,
    };

    use super::*;

    /// Connections that keep whoever closes them last waiting, and their other ends.
    pub(crate) fn lingering(count: usize) -> Vec<(OwnedFd, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        sockopt::set_socket_recv_buffer_size(&listener, 2048).unwrap();
        let make = |_| {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (other, _) = listener.accept().unwrap();
            sockopt::set_socket_linger(&stream, Some(Duration::from_secs(60))).unwrap();
            stream.set_nonblocking(true).unwrap();
            while rustix::io::write(&stream, &[0; 4096]).is_ok() {}
            (OwnedFd::from(stream), other)
        };
        (0..count).map(make).collect()
    }

    pub(crate) fn give(socket: &OwnedFd, bytes: &[u8], descriptors: &[OwnedFd]) {
        use std::os::fd::AsFd as _;
        let borrowed: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)));
        sendmsg(socket, &[std::io::IoSlice::new(bytes)], &mut ancillary, SendFlags::empty()).unwrap();
    }

    #[test]
    fn what_lingers_keeps_nobody_waiting() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let (near, far): (Vec<_>, Vec<_>) = lingering(3).into_iter().unzip();
        give(&theirs, b"x", &near);
        drop(near);
        let mut bytes = [0; 8];
        let begun = Instant::now();
        let (got, flags, received) = receive(&ours, &mut bytes).unwrap();
        assert_eq!((got, received.len()), (1, 3));
        assert!(!flags.contains(ReturnFlags::CTRUNC));
        for descriptor in received.as_slice() {
            assert_eq!(sockopt::socket_linger(descriptor).unwrap(), None);
            // As a twin inside would, after that.
            sockopt::set_socket_linger(descriptor, Some(Duration::from_secs(60))).unwrap();
        }
        drop(received);
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        drop(far);
    }

    #[test]
    fn the_most_that_there_can_be_arrives_whole() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let many: Vec<_> = (0..MAX_DESCRIPTORS).map(|_| null.try_clone().unwrap()).collect();
        give(&theirs, b"x", &many);
        let (_, flags, received) = receive(&ours, &mut [0; 8]).unwrap();
        assert_eq!(received.len(), MAX_DESCRIPTORS);
        assert!(!flags.contains(ReturnFlags::CTRUNC));
    }
}
