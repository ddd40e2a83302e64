use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use sandbar_core::{ErrorKind, PortMapping, PortPublication, Result};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::listener::{Listener, fits};
use super::shared::{Shared, hold};
use crate::ctl;
use crate::error::{fail, io_error};
use crate::inside::{MAX_DESCRIPTORS, Tcp};

/// Connections into a sandbox at once, over all its ports: a browser takes six to a server, a load test some hundred.
const CONNECTIONS: usize = 512;
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
    permits: Arc<Semaphore>,
    asking: Arc<Semaphore>,
}

#[derive(Debug)]
struct Published {
    mapping: PortMapping,
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
        Self {
            published: Mutex::default(),
            permits: Arc::new(Semaphore::new(CONNECTIONS)),
            asking: Arc::new(Semaphore::new(questions(getrlimit(Resource::Nofile).current))),
        }
    }
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
        published.insert(mapping.guest, Published { mapping: mapping.clone(), _serving: serving });
        Ok(mapping)
    }

    /// What is published.
    pub(super) fn list(&self) -> Vec<PortMapping> {
        hold(&self.published).values().map(|published| published.mapping.clone()).collect()
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

/// Opens a connection to `port` on the sandbox' loopback.
pub(super) async fn dial(shared: &Shared, port: u16) -> Result<Dialled> {
    let Ok(permit) = Arc::clone(&shared.ports.permits).try_acquire_owned() else {
        let message = format!("the sandbox has {CONNECTIONS} connections already");
        return Err(fail(ErrorKind::LimitExceeded, "dial", message));
    };
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
            Ok((mut outside, _)) => {
                let Some(shared) = shared.upgrade() else { return };
                connections.spawn(async move {
                    if let Ok(Dialled::Connection(mut inside)) = dial(&shared, port).await {
                        let _ = outside.set_nodelay(true);
                        // Either side may end its half alone; an error ends both.
                        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                    }
                });
            }
            // Out of descriptors, most likely: those in use are given back sooner or later.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        while connections.try_join_next().is_some() {}
    }
}
