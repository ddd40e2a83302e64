//! The control protocol of the host side: one JSON object a packet, with descriptors where named.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    accept_with, recvmsg, sendmsg,
};
use sandbar_engine::network::NetworkSockets;
use sandbar_engine::process::{Reach, signal_all};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixListener};
use tokio::time::timeout;

use crate::descriptor;
use crate::log::log;
use crate::main_command;
use crate::state::State;

/// Largest packet either way, in bytes.
const MAX_PACKET: usize = 64 << 10;
/// Version of the protocol.
const VERSION: u32 = 1;
/// How long connecting to a port of this very machine may take; only a full backlog makes it wait.
const DIAL_LIMIT: Duration = Duration::from_secs(5);
/// Pause after a failed accept, which is a lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct Request {
    v: u32,
    #[serde(flatten)]
    op: Op,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Op {
    Ping,
    Dial { port: u16 },
    Deadline { unix_ms: Option<u64> },
    Listeners,
    Network,
    Quiet,
    Go,
    KillAll { signal: i32 },
    Main { from: u64, seen: u64, wait_ms: u64 },
    Shutdown,
}

/// Says what is wrong with a request.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn understands(packet: &[u8]) -> Result<(), String> {
    request(packet).map(drop)
}

fn request(packet: &[u8]) -> Result<Op, String> {
    match serde_json::from_slice::<Request>(packet) {
        Err(error) => Err(format!("malformed request: {error}")),
        Ok(Request { v, .. }) if v != VERSION => Err(format!("version {v} is not spoken; {VERSION} is")),
        Ok(Request { op, .. }) => Ok(op),
    }
}

/// A socket of sequenced packets.
pub(crate) struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self(descriptor::watch(socket)?))
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }

    pub(crate) async fn accept(&self) -> io::Result<Self> {
        loop {
            let mut ready = self.0.readable().await?;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            if let Ok(result) = ready.try_io(|socket| Ok(accept_with(socket.get_ref(), flags)?)) {
                return Self::new(result?);
            }
        }
    }

    /// The next packet and its descriptors, of at most `D` bytes of control data; `None` where the other end has
    /// closed. A packet above `max` bytes is an error.
    pub(crate) async fn receive(
        &self,
        max: usize,
        descriptors: usize,
    ) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        loop {
            let mut ready = self.0.readable().await?;
            let received = ready.try_io(|socket| receive_now(socket.get_ref().as_fd(), max, descriptors));
            if let Ok(result) = received {
                return result;
            }
        }
    }

    pub(crate) async fn send(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            let mut ready = self.0.writable().await?;
            if let Ok(result) = ready.try_io(|socket| send_now(socket.get_ref().as_fd(), packet, descriptors))
            {
                return result;
            }
        }
    }
}

/// Most descriptors of one packet that is received, and of one that is sent.
pub(crate) const MAX_DESCRIPTORS: usize = 4;
const MAX_SENT: usize = sandbar_engine::network::SOCKETS;

/// Receives one packet; more bytes or descriptors than asked for are an error.
pub(crate) fn receive_now(
    socket: BorrowedFd<'_>,
    max: usize,
    descriptors: usize,
) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut packet = vec![0; max + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message =
        recvmsg(socket, &mut [IoSliceMut::new(&mut packet)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut received = Vec::new();
    for message in control.drain() {
        if let rustix::net::RecvAncillaryMessage::ScmRights(rights) = message {
            received.extend(rights);
        }
    }
    if message.bytes == 0 && received.is_empty() {
        return Ok(None);
    }
    let cut = rustix::net::ReturnFlags::TRUNC | rustix::net::ReturnFlags::CTRUNC;
    if message.bytes > max || message.flags.intersects(cut) || received.len() > descriptors {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "packet is too large or has too many descriptors",
        ));
    }
    packet.truncate(message.bytes);
    Ok(Some((packet, received)))
}

/// Sends one packet.
pub(crate) fn send_now(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SENT))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for a packet"));
    }
    sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What can be handed over.
struct Held {
    agent: Rc<UnixListener>,
    control: Socket,
    network: Option<Rc<NetworkSockets>>,
}

/// Serves the host side until the agent ends.
pub(crate) async fn serve(
    state: Rc<State>,
    agent: Rc<UnixListener>,
    socket: Socket,
    network: Option<Rc<NetworkSockets>>,
) {
    let held = Rc::new(Held { agent, control: socket, network });
    loop {
        match held.control.accept().await {
            Ok(connection) => {
                tokio::task::spawn_local(converse(state.clone(), held.clone(), connection));
            }
            Err(error) => {
                log(format_args!("accept a control connection: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers requests in turn. A packet that is too large ends the conversation.
async fn converse(state: Rc<State>, held: Rc<Held>, connection: Socket) {
    while let Ok(Some((packet, _))) = connection.receive(MAX_PACKET, 0).await {
        let sent = match request(&packet) {
            Err(why) => send(&connection, &refusal(&why), &[]).await,
            Ok(op) => match op {
                Op::Ping => send(&connection, &ping(&state), &[]).await,
                Op::Deadline { unix_ms } => {
                    state.deadline.set(unix_ms);
                    state.deadline_changed.notify_one();
                    send(&connection, &json!({"ok": true}), &[]).await
                }
                Op::Listeners => {
                    let answer = json!({"ok": true, "names": ["agent", "ctl"]});
                    send(&connection, &answer, &[held.agent.as_fd(), held.control.as_fd()]).await
                }
                Op::Network => match &held.network {
                    Some(network) => send(&connection, &json!({"ok": true}), &network.in_order()).await,
                    None => send(&connection, &refusal("none"), &[]).await,
                },
                Op::Dial { port } => match dial(port).await {
                    Ok(stream) => send(&connection, &json!({"ok": true}), &[stream.as_fd()]).await,
                    Err(error) => send(&connection, &refusal(&error), &[]).await,
                },
                Op::Main { from, seen, wait_ms } => {
                    send(&connection, &main(&state, from, seen, wait_ms).await, &[]).await
                }
                Op::Quiet => {
                    let answer =
                        if state.quiet.begin(&state).await { json!({"ok": true}) } else { refusal("busy") };
                    send(&connection, &answer, &[]).await
                }
                Op::Go => {
                    state.quiet.end();
                    send(&connection, &json!({"ok": true}), &[]).await
                }
                Op::KillAll { signal } => send(&connection, &kill_all(&state, signal), &[]).await,
                Op::Shutdown => {
                    let sent = send(&connection, &json!({"ok": true}), &[]).await;
                    state.shutdown.notify_one();
                    sent
                }
            },
        };
        if sent.is_err() {
            return;
        }
    }
}

fn refusal(text: &str) -> Value {
    json!({"ok": false, "error": text})
}

async fn send(connection: &Socket, answer: &Value, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    connection.send(answer.to_string().as_bytes(), descriptors).await
}

fn ping(state: &State) -> Value {
    json!({
        "ok": true,
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "processes": state.registry.len(),
    })
}

/// Connects to a port of the sandbox. The error is a word: `refused`, or what else happened.
async fn dial(port: u16) -> Result<TcpStream, String> {
    let mut problem = "refused".to_owned();
    let v4 = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, port));
    let v6 = std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
    for address in [v4, v6] {
        match timeout(DIAL_LIMIT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            // No IPv6 is no news about the port.
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused || address.is_ipv6() => {}
            Ok(Err(error)) => problem = error.to_string(),
            Err(_) => "timed out".clone_into(&mut problem),
        }
    }
    Err(problem)
}

/// The main command. The error for none is a word.
async fn main(state: &State, from: u64, seen: u64, wait_ms: u64) -> Value {
    match &state.main {
        Some(main) => main_command::answer(main, from, seen, Duration::from_millis(wait_ms)).await,
        None => refusal("none"),
    }
}

/// Signals everything but the agent and the commands' stubs, which end with what is below them.
fn kill_all(state: &State, signal: i32) -> Value {
    let trees = state.registry.trees();
    // Here and now: where no process can be made, no thread can be either.
    let sent = if std::process::id() == 1 {
        let stubs: Vec<i32> = trees.iter().map(|tree| tree.stub()).collect();
        signal_all(signal, &stubs)
    } else {
        trees.iter().map(|tree| tree.signal(signal, Reach::Everything)).sum()
    };
    match sent {
        Ok(count) => json!({"ok": true, "signalled": count}),
        Err(error) => refusal(&error.to_string()),
    }
}
