use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use sandbar_core::{ErrorKind, PortMapping, PortPublication, Result};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::listener::{Listener, fits};
use super::shared::{Shared, hold};
use crate::ctl;
use crate::error::{fail, io_error};
use crate::inside::{MAX_DESCRIPTORS, Tcp};

/// Connections to one published port at once: a browser takes six to a server, a load test some hundred.
const CONNECTIONS: usize = 512;
/// Connections to all published ports at once. Who else may reach them can use up those of one; so that nobody else's is shut by that, each
/// port has its share of this to itself.
const ALL_CONNECTIONS: usize = 2048;
/// Connections of `dial` at once, which no user of a published port can take away.
const DIALLED: usize = 256;
/// How long a connection whose outer half has ended may be silent: who is gone looks the same as who only waits for an answer.
const LINGER: Duration = Duration::from_secs(120);
/// Bytes that are passed on at once.
const PIECE: usize = 16 << 10;
/// Questions to the agent at once, at most: each answer may carry as many descriptors as a message can.
const ASKING: usize = 8;
/// How long a question may wait for its turn.
const TURN: Duration = Duration::from_secs(10);
/// Ports that can be published; each costs a listener on the host.
const MAX_PORTS: usize = 256;

/// Ports of a sandbox that can be reached from the host.
#[derive(Debug)]
pub(super) struct Ports {
    published: Mutex<BTreeMap<u16, Published>>,
    dialled: Arc<Semaphore>,
    /// Connections to published ports that there may be.
    room: usize,
    asking: Arc<Semaphore>,
    /// Whether the sandbox sleeps: then nobody is let in.
    asleep: AtomicBool,
}

#[derive(Debug)]
struct Published {
    mapping: PortMapping,
    permits: Arc<Semaphore>,
    /// Ends with the entry.
    _serving: Serving,
}

#[derive(Debug)]
struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What came of dialling.
pub(super) enum Dialled {
    /// A connection.
    Connection(Tcp),
    /// Nothing listens there.
    Refused,
}

impl Default for Ports {
    fn default() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current;
        Self {
            published: Mutex::default(),
            dialled: Arc::new(Semaphore::new(DIALLED)),
            room: room(descriptors),
            asking: Arc::new(Semaphore::new(questions(descriptors))),
            asleep: AtomicBool::new(false),
        }
    }
}

/// How many connections to published ports fit in half of what this process may open; each takes two.
fn room(descriptors: Option<u64>) -> usize {
    let descriptors = usize::try_from(descriptors.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    (descriptors / 4).clamp(1, ALL_CONNECTIONS)
}

/// How many connections a port may have that is one of `ports`.
fn share(room: usize, ports: usize) -> usize {
    (room / ports.max(1)).clamp(1, CONNECTIONS)
}

/// How many answers full of descriptors fit in a quarter of what this process may open; what does not fit is closed by the kernel at once, and in
/// this process' time.
fn questions(descriptors: Option<u64>) -> usize {
    let descriptors = usize::try_from(descriptors.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    (descriptors / 4 / MAX_DESCRIPTORS).clamp(1, ASKING)
}

impl Ports {
    /// Takes connections at `listener` from now on.
    pub(super) fn serve(&self, shared: &Arc<Shared>, listener: Listener) -> Result<PortMapping> {
        let mapping = listener.mapping().clone();
        let mut published = hold(&self.published);
        if published.len() >= MAX_PORTS {
            let message = format!("{MAX_PORTS} ports are published already");
            return Err(fail(ErrorKind::LimitExceeded, "publish", message)
                .with_hint("take back one that is not needed"));
        }
        let socket = listener
            .into_socket()
            .map_err(|cause| io_error("publish", &format!("port {}", mapping.guest), cause))?;
        let serving = Serving(tokio::spawn(serve(Arc::downgrade(shared), socket, mapping.guest)));
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        published.insert(mapping.guest, Published { mapping: mapping.clone(), permits, _serving: serving });
        Ok(mapping)
    }

    /// What is published.
    pub(super) fn list(&self) -> Vec<PortMapping> {
        hold(&self.published).values().map(|published| published.mapping.clone()).collect()
    }

    /// Lets nobody in from now on.
    pub(super) fn sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
    }

    /// Lets everybody in again.
    pub(super) fn wake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// A place for a connection to a published port, where it has one left.
    fn place(&self, guest: u16) -> Option<OwnedSemaphorePermit> {
        if self.asleep.load(Ordering::Relaxed) {
            return None;
        }
        let published = hold(&self.published);
        let permits = &published.get(&guest)?.permits;
        if CONNECTIONS - permits.available_permits() >= share(self.room, published.len()) {
            return None;
        }
        Arc::clone(permits).try_acquire_owned().ok()
    }

    fn of(&self, guest: u16) -> Option<PortMapping> {
        hold(&self.published).get(&guest).map(|published| published.mapping.clone())
    }

    fn remove(&self, guest: u16) -> bool {
        hold(&self.published).remove(&guest).is_some()
    }
}

/// Makes a port reachable where it says. One that is published at a place that fits keeps it.
pub(super) fn publish(shared: &Arc<Shared>, wanted: PortPublication) -> Result<PortMapping> {
    const PUBLISH: &str = "publish";
    if let Some(mapping) = shared.ports.of(wanted.guest) {
        if fits(&mapping, wanted) {
            return Ok(mapping);
        }
        let PortMapping { guest, host, port } = mapping;
        let message = format!("port {guest} is published already, at `{}`", address(&host, port));
        return Err(fail(ErrorKind::AlreadyExists, PUBLISH, message)
            .with_resource(format!("port {guest}"))
            .with_hint(format!(
                "use that address, or take the port back first: `sandbar port {} {guest} --remove`",
                shared.folder.id()
            )));
    }
    let listener = Listener::bind(PUBLISH, wanted)?;
    let is_chosen = listener.is_chosen();
    let mapping = shared.ports.serve(shared, listener)?;
    let published = shared.ports.list();
    let written = shared.update(|record| {
        record.ports = published;
        record.private.chosen_ports.retain(|port| *port != wanted.guest);
        record.private.chosen_ports.extend(is_chosen.then_some(wanted.guest));
    });
    written.map_err(|cause| {
        // What no record tells of would be lost with this process.
        shared.ports.remove(wanted.guest);
        io_error(PUBLISH, "`record.json`", cause)
    })?;
    Ok(mapping)
}

/// Takes back what was published; the answer is whether it was.
pub(super) fn unpublish(shared: &Arc<Shared>, guest: u16) -> Result<bool> {
    if shared.ports.of(guest).is_none() {
        return Ok(false);
    }
    shared
        .update(|record| {
            record.ports.retain(|mapping| mapping.guest != guest);
            record.private.chosen_ports.retain(|port| *port != guest);
        })
        .map_err(|cause| io_error("unpublish", "`record.json`", cause))?;
    Ok(shared.ports.remove(guest))
}

/// Publishes again what an earlier shim had. Where an address is somebody else's by now, a port that may be anywhere gets another; one whose place
/// was chosen is not published any more, and the record says so.
pub(super) fn bring_back(shared: &Arc<Shared>) -> Result<()> {
    let (ports, chosen) = shared.look(|record| (record.ports.clone(), record.private.chosen_ports.clone()));
    let mut lost = Vec::new();
    for mapping in &ports {
        let listener = match Listener::again(mapping) {
            Ok(listener) => listener,
            Err(_) if !chosen.contains(&mapping.guest) => {
                Listener::bind("adopt", PortPublication::new(mapping.guest))?
            }
            Err(error) => {
                lost.push((mapping.guest, error.message().to_owned()));
                continue;
            }
        };
        shared.ports.serve(shared, listener)?;
    }
    let published = shared.ports.list();
    if ports == published {
        return Ok(());
    }
    shared
        .update(|record| {
            record.ports = published;
            for (guest, why) in lost {
                record.private.chosen_ports.retain(|port| *port != guest);
                let reasons = record.reason.take().into_iter().chain([why]).collect::<Vec<_>>();
                record.reason = Some(reasons.join("; "));
            }
        })
        .map_err(|cause| io_error("adopt", "`record.json`", cause))
}

/// An address as it is written: that of version 6 in brackets.
fn address(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

/// Opens a connection to `port` on the sandbox' loopback, for a caller of this shim.
pub(super) async fn dial(shared: &Shared, port: u16) -> Result<Dialled> {
    let Ok(permit) = Arc::clone(&shared.ports.dialled).try_acquire_owned() else {
        let message = format!("{DIALLED} connections into the sandbox were dialled already");
        return Err(fail(ErrorKind::LimitExceeded, "dial", message)
            .with_hint("close one that is not needed, or publish the port"));
    };
    connect(shared, port, permit).await
}

async fn connect(shared: &Shared, port: u16, permit: OwnedSemaphorePermit) -> Result<Dialled> {
    let broken = |why: String| fail(ErrorKind::Unavailable, "dial", format!("port {port}: {why}"));
    let asking = Arc::clone(&shared.ports.asking);
    let Ok(Ok(place)) = timeout(TURN, asking.acquire_owned()).await else {
        return Err(broken(format!("the agent keeps earlier calls waiting for {} s", TURN.as_secs())));
    };
    match ctl::ask(&shared.folder, &ctl::Op::Dial { port }, Some(place)).await {
        Ok(ctl::Outcome::Done(received)) => Tcp::checked(received, permit)
            .map(Dialled::Connection)
            .map_err(|cause| broken(format!("the agent gave {cause}"))),
        Ok(ctl::Outcome::No(why)) if why == "refused" => Ok(Dialled::Refused),
        Ok(ctl::Outcome::No(why)) => Err(broken(why)),
        Err(failure) => Err(broken(failure.to_string())),
    }
}

/// Takes connections on the host side. Those that nothing inside takes are closed.
async fn serve(shared: std::sync::Weak<Shared>, listener: TcpListener, port: u16) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((outside, _)) => {
                let Some(shared) = shared.upgrade() else { return };
                let Some(place) = shared.ports.place(port) else { continue };
                connections.spawn(async move {
                    if let Ok(Dialled::Connection(inside)) = connect(&shared, port, place).await {
                        let _ = outside.set_nodelay(true);
                        // Either side may end its half alone; an error ends both.
                        let _ = pass(outside, inside, LINGER).await;
                    }
                });
            }
            // Out of descriptors, most likely: those in use are given back sooner or later.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Passes bytes both ways until both halves have ended, or the outer one has and nothing moved for `linger` since.
async fn pass<S>(mut outside: TcpStream, inside: S, linger: Duration) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite,
{
    let (mut from_outside, mut to_outside) = outside.split();
    let (mut from_inside, mut to_inside) = tokio::io::split(inside);
    let (has_ended, ended) = watch::channel(false);
    let inward = async {
        tokio::io::copy(&mut from_outside, &mut to_inside).await?;
        to_inside.shutdown().await?;
        has_ended.send_replace(true);
        Ok::<_, io::Error>(())
    };
    let outward = async {
        let mut piece = vec![0; PIECE];
        loop {
            let moved = async {
                let got = from_inside.read(&mut piece).await?;
                to_outside.write_all(&piece[..got]).await?;
                Ok::<_, io::Error>(got)
            };
            if unless_silent(moved, ended.clone(), linger).await? == 0 {
                return to_outside.shutdown().await;
            }
        }
    };
    tokio::try_join!(inward, outward).map(drop)
}

/// Does `work`; once the other half has `ended` it may take only so long.
async fn unless_silent<T>(
    work: impl Future<Output = io::Result<T>>,
    mut ended: watch::Receiver<bool>,
    linger: Duration,
) -> io::Result<T> {
    let silence = async {
        if ended.wait_for(|ended| *ended).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(linger).await;
    };
    tokio::select! {
        done = work => done,
        () = silence => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[test]
    fn no_port_takes_what_the_others_need() {
        assert_eq!(share(ALL_CONNECTIONS, 1), CONNECTIONS);
        assert_eq!(share(ALL_CONNECTIONS, MAX_PORTS), 8);
        assert_eq!((room(Some(1024)), share(room(Some(1024)), 2)), (256, 128));
        assert_eq!((room(None), room(Some(0)), share(1, MAX_PORTS)), (ALL_CONNECTIONS, 1, 1));
    }

    #[tokio::test]
    async fn a_connection_whose_client_is_gone_ends_though_the_guest_never_closes() {
        let linger = Duration::from_millis(50);
        let (client, outside) = connected().await;
        let (inside, mut guest) = tokio::io::duplex(64);
        let passing = tokio::spawn(pass(outside, inside, linger));
        drop(client);
        assert_eq!(guest.read(&mut [0; 8]).await.unwrap(), 0, "the guest sees the end");
        let ended = timeout(TURN, passing).await.expect("it ends").unwrap();
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn who_only_ended_its_half_gets_its_answer_and_who_is_silent_stays() {
        let linger = Duration::from_millis(300);
        let (mut client, outside) = connected().await;
        let (inside, mut guest) = tokio::io::duplex(64);
        let passing = tokio::spawn(pass(outside, inside, linger));
        // Silence alone ends nothing.
        assert!(timeout(linger * 2, client.read(&mut [0; 8])).await.is_err());
        client.write_all(b"ask").await.unwrap();
        client.shutdown().await.unwrap();
        let mut asked = Vec::new();
        guest.read_to_end(&mut asked).await.unwrap();
        guest.write_all(b"answer").await.unwrap();
        drop(guest);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!((&asked[..], &answer[..]), (&b"ask"[..], &b"answer"[..]));
        timeout(TURN, passing).await.expect("it ends").unwrap().unwrap();
    }
}
