use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use sandbar_core::{ErrorKind, PortMapping, Result};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

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
    /// Makes `port` reachable on the host's loopback, at `wanted` if that is free. A port that is published already keeps its address.
    pub(super) async fn publish(
        &self,
        shared: &Arc<Shared>,
        port: u16,
        wanted: Option<u16>,
    ) -> Result<PortMapping> {
        if let Some(published) = hold(&self.published).get(&port) {
            return Ok(published.mapping.clone());
        }
        let unavailable = |cause: std::io::Error| io_error("publish", &format!("port {port}"), cause);
        let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, wanted.unwrap_or(0))).await {
            Ok(listener) => listener,
            // Somebody else has it by now.
            Err(_) if wanted.is_some() => {
                TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(unavailable)?
            }
            Err(cause) => return Err(unavailable(cause)),
        };
        let address = listener.local_addr().map_err(unavailable)?;
        let mapping = PortMapping { guest: port, host: address.ip().to_string(), port: address.port() };
        let mut published = hold(&self.published);
        if published.len() >= MAX_PORTS {
            return Err(fail(
                ErrorKind::LimitExceeded,
                "publish",
                format!("{MAX_PORTS} ports are published already"),
            ));
        }
        if let Some(other) = published.get(&port) {
            return Ok(other.mapping.clone());
        }
        let serving = Serving(tokio::spawn(serve(Arc::downgrade(shared), listener, port)));
        published.insert(port, Published { mapping: mapping.clone(), _serving: serving });
        Ok(mapping)
    }

    /// What is published.
    pub(super) fn list(&self) -> Vec<PortMapping> {
        hold(&self.published).values().map(|published| published.mapping.clone()).collect()
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
