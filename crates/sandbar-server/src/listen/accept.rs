use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at once: an SDK opens up to 200, and a machine runs some dozens of programs that use one.
const MAX_CONNECTIONS: usize = 8192;
/// Connections at once of one address, of those there may be: half, so that nobody shuts out all others. On loopback all are of one address.
const SHARE_OF_PEER: usize = 2;
/// Descriptors that a connection may need: its own, one into a sandbox, and a look meanwhile.
const DESCRIPTORS_EACH: usize = 3;
/// Pause after a failure to accept, which is a lack of descriptors or memory; doubled as long as it lasts, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How many connections there may be, in all and from one address.
#[derive(Clone, Debug)]
pub(super) struct Places {
    all: Arc<Semaphore>,
    of_peer: usize,
    peers: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// The right of one connection to be there.
#[derive(Debug)]
pub(super) struct Place {
    peer: IpAddr,
    peers: Arc<Mutex<HashMap<IpAddr, usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// As many as this process has descriptors for, up to [`MAX_CONNECTIONS`].
    pub(super) fn new() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        Self::of((descriptors / DESCRIPTORS_EACH).clamp(1, MAX_CONNECTIONS))
    }

    fn of(all: usize) -> Self {
        let of_peer = (all / SHARE_OF_PEER).max(1);
        Self { all: Arc::new(Semaphore::new(all)), of_peer, peers: Arc::default() }
    }

    /// A place for one more of this address, if there is one.
    pub(super) fn take(&self, peer: IpAddr) -> Option<Place> {
        let permit = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = peers.entry(peer).or_default();
        if *count >= self.of_peer {
            return None;
        }
        *count += 1;
        Some(Place { peer, peers: Arc::clone(&self.peers), _permit: permit })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = peers.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}

/// The next connection. A failure of the system's is waited out; one of the connection's own is passed over.
pub(super) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut pause = FIRST_PAUSE;
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "connections can't be accepted for the moment");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_takes_all_places() {
        let places = Places::of(4);
        let (one, other) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        let taken: Vec<_> = (0..2).map(|_| places.take(one).expect("there is room")).collect();
        assert!(places.take(one).is_none(), "that is its share");
        let others: Vec<_> = (0..2).map(|_| places.take(other).expect("there is room")).collect();
        assert!(places.take([127, 0, 0, 3].into()).is_none(), "all are taken");
        drop(taken);
        assert!(places.take(one).is_some(), "they are given back");
        drop(others);
        assert_eq!(places.all.available_permits(), 4);
        assert!(places.peers.lock().unwrap().is_empty(), "nothing is kept of who is gone");
    }
}
