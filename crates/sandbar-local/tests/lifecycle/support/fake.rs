//! An agent that is somebody else's by now: sockets in its place, of the kind that it would serve.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept, bind, listen, recv, sendmsg, socket_with, sockopt,
};

/// Between two looks whether it is time to end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A thread that serves in the agent's place until this is dropped.
pub(crate) struct Fake {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    /// Serves `ctl.sock`: to each request `answer`, with what `descriptors` makes.
    pub(crate) fn ctl(
        folder: &Path,
        answer: &'static [u8],
        descriptors: impl Fn() -> Vec<OwnedFd> + Send + 'static,
    ) -> Self {
        Self::ctl_saying(folder, move || (answer.to_vec(), descriptors()))
    }

    /// Serves `ctl.sock`: to each request what `answer` makes, bytes and descriptors.
    pub(crate) fn ctl_saying(
        folder: &Path,
        answer: impl Fn() -> (Vec<u8>, Vec<OwnedFd>) + Send + 'static,
    ) -> Self {
        let path = folder.join("ctl.sock");
        std::fs::remove_file(&path).expect("the real one");
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a socket");
        bind(&listener, &SocketAddrUnix::new(&path).expect("a short path")).expect("bound");
        listen(&listener, 16).expect("it listens");
        Self::serve(move |over| {
            while !over.load(Ordering::Relaxed) {
                if !is_readable(&listener) {
                    continue;
                }
                let socket = accept(&listener).expect("a connection");
                let _ = recv(&socket, &mut [0; 8192][..], RecvFlags::empty());
                let (bytes, descriptors) = answer();
                send(&socket, &bytes, &descriptors);
            }
        })
    }

    /// Serves `agent.sock`: reads the beginning of a request and hands the connection over.
    pub(crate) fn agent(folder: &Path, talk: impl Fn(UnixStream, &AtomicBool) + Send + 'static) -> Self {
        let path = folder.join("agent.sock");
        std::fs::remove_file(&path).expect("the real one");
        let listener = UnixListener::bind(&path).expect("bound");
        Self::serve(move |over| {
            while !over.load(Ordering::Relaxed) {
                if !is_readable(&listener) {
                    continue;
                }
                let (mut stream, _) = listener.accept().expect("a connection");
                stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a bound");
                stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a bound");
                let _ = stream.read(&mut [0; 8192]);
                talk(stream, &over);
            }
        })
    }

    fn serve(work: impl FnOnce(Arc<AtomicBool>) + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        Self { over, thread: Some(std::thread::spawn(move || work(told))) }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the fake failed");
        }
    }
}

/// The head of a streaming answer.
pub(crate) const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A message of a stream, as a chunk.
pub(crate) fn chunk(message: &str) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a short message");
    let mut bytes = format!("{:x}\r\n", message.len() + 5).into_bytes();
    bytes.push(0);
    bytes.extend(length.to_be_bytes());
    bytes.extend(message.as_bytes());
    bytes.extend(b"\r\n");
    bytes
}

/// Writes the same again and again until nobody reads it any more or it is time to end.
pub(crate) fn flood(mut stream: &UnixStream, bytes: &[u8], over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) && stream.write_all(bytes).is_ok() {}
}

/// A connection that keeps whoever closes it last waiting. Its other end never reads.
pub(crate) fn lingering() -> OwnedFd {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    sockopt::set_socket_recv_buffer_size(&listener, 2048).expect("a small buffer");
    let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (other, _) = listener.accept().expect("the other end");
    sockopt::set_socket_linger(&stream, Some(Duration::from_secs(120))).expect("it lingers");
    stream.set_nonblocking(true).expect("it does not block");
    while rustix::io::write(&stream, &[0; 4096]).is_ok() {}
    // Open for as long as the test's process lives.
    std::mem::forget(other);
    stream.into()
}

/// Sends bytes with descriptors.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[OwnedFd]) {
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)));
    }
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
}

fn is_readable(socket: &impl AsFd) -> bool {
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&LOOK)).is_ok_and(|ready| ready > 0)
}
