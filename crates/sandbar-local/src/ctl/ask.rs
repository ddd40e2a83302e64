use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, ReturnFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send,
    socket_with, sockopt,
};
use sandbar_engine::network::NetworkSockets;
use tokio::sync::OwnedSemaphorePermit;

use super::main_command::{self, MainAnswer};
use super::message::{Failure, Op, Outcome, packet, read};
use crate::home::Folder;
use crate::inside::{Packets, Received, receive};

/// Longest packet, in bytes (decision 0006).
const MAX_PACKET: usize = 64 << 10;
/// How long an answer may take. `dial` waits for a connection on loopback, which is made at once or not at all.
const BOUND: Duration = Duration::from_secs(5);

/// Asks the agent of the sandbox in `folder`. What comes with the answer keeps `place` until it is closed or taken.
pub(crate) async fn ask(
    folder: &Folder,
    op: &Op,
    place: Option<OwnedSemaphorePermit>,
) -> Result<Outcome, Failure> {
    let (bytes, received) = within(BOUND, exchange(folder, op)).await?;
    read(op, &bytes, received.holding(place))
}

/// Asks how the main command is, and what it said from byte `from` on. The agent waits up to `wait` until its state is another than `seen` or there is
/// such output. The inner error is the agent's own word.
pub(crate) async fn ask_main(
    folder: &Folder,
    from: u64,
    seen: u64,
    wait: Duration,
) -> Result<Result<MainAnswer, String>, Failure> {
    let op = Op::Main { from, seen, wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) };
    let (bytes, received) = within(wait + BOUND, exchange(folder, &op)).await?;
    if received.len() > 0 {
        return Err(Failure::Other(std::io::Error::other(
            "the agent gives descriptors that nobody asked for",
        )));
    }
    main_command::read(&bytes)
}

async fn within<T>(bound: Duration, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(bound, work).await.unwrap_or_else(|_| {
        Err(Failure::Other(std::io::Error::other(format!("no answer within {} s", bound.as_secs()))))
    })
}

/// Tells the agent to end everything, without a runtime and without waiting for an answer. `false` means that nobody listens.
pub(crate) fn tell_shutdown(folder: &Folder) -> bool {
    match dial(folder) {
        Ok(socket) => {
            let _ = send(&socket, &packet(&Op::Shutdown), SendFlags::NOSIGNAL);
            drop(Packets::new(socket));
            true
        }
        // A full backlog is somebody, too.
        Err(Errno::AGAIN) => true,
        Err(_) => false,
    }
}

async fn exchange(folder: &Folder, op: &Op) -> Result<(Vec<u8>, Received), Failure> {
    let conversation = loop {
        match dial(folder) {
            Ok(socket) => break Packets::new(socket),
            // The queue of connections is full: the agent is busy. The caller's bound ends this.
            Err(Errno::AGAIN) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(cause) => return Err(cause.into()),
        }
    };
    // Declared later, and so closed earlier: the last to be closed is the one that is closed aside.
    let socket = conversation.watch().map_err(Failure::Other)?;
    send(socket.get_ref(), &packet(op), SendFlags::NOSIGNAL)?;
    let mut bytes = vec![0; MAX_PACKET];
    loop {
        let mut ready = socket.readable().await.map_err(Failure::Other)?;
        match receive(socket.get_ref(), &mut bytes) {
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(cause) => return Err(cause.into()),
            Ok((0, _, _)) => return Err(Failure::Gone),
            Ok((got, flags, received)) => {
                if flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
                    return Err(Errno::MSGSIZE.into());
                }
                bytes.truncate(got);
                return Ok((bytes, received));
            }
        }
    }
}

fn dial(folder: &Folder) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(folder.socket(crate::shim::CTL_SOCKET))?)?;
    Ok(socket)
}

/// Checks that what came from inside are Unix listeners: of the guest protocol and of the control protocol.
pub(crate) fn checked_listeners(descriptors: &[OwnedFd]) -> std::io::Result<()> {
    let [agent, ctl] = descriptors else {
        return Err(std::io::Error::other(format!("{} listeners instead of two", descriptors.len())));
    };
    for (socket, kind) in [(agent, SocketType::STREAM), (ctl, SocketType::SEQPACKET)] {
        let fine = sockopt::socket_domain(socket)? == AddressFamily::UNIX
            && sockopt::socket_type(socket)? == kind
            && sockopt::socket_acceptconn(socket)?;
        if !fine {
            return Err(std::io::Error::other("a descriptor that is not the listener asked for"));
        }
    }
    Ok(())
}

/// Checks that what came from inside are the sockets of the sandbox's network. They stay shared with the agent: what they do is
/// no more trusted than it.
pub(crate) fn checked_network(mut received: Received) -> std::io::Result<NetworkSockets> {
    // What is not kept is closed aside.
    NetworkSockets::check(received.as_slice())?;
    NetworkSockets::checked(received.take_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sockets_of_a_network_pass() {
        assert!(checked_network(Received::default()).is_err());
        let listener = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().into();
        let many: Vec<OwnedFd> = (0..sandbar_engine::network::SOCKETS).map(|_| listener()).collect();
        assert!(checked_network(many.into()).is_err());
    }

    #[test]
    fn only_the_two_listeners_pass() {
        let scratch = tempfile::tempdir().unwrap();
        let stream: OwnedFd =
            std::os::unix::net::UnixListener::bind(scratch.path().join("a")).unwrap().into();
        let tcp: OwnedFd = std::net::TcpListener::bind("127.0.0.1:0").unwrap().into();
        assert!(checked_listeners(&[stream, tcp]).is_err());
        assert!(checked_listeners(&[]).is_err());
    }
}
