//! What was seen, in one order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use std::net::{IpAddr, SocketAddr};

use sandbar_rig::wire::{Arrival, Connection, Query, Request};

/// Most records of a kind. A test that makes more is told so, since an incomplete answer would hide a leak.
const LIMIT: usize = 500_000;
/// Bytes kept of what came first.
pub(crate) const HEAD: usize = 64;

/// All records.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    seq: AtomicU64,
    full: AtomicBool,
    queries: Mutex<Vec<Query>>,
    arrivals: Mutex<Vec<Arrival>>,
    connections: Mutex<Vec<Arc<Entry>>>,
    requests: Mutex<Vec<Request>>,
}

/// A connection that may still go on.
#[derive(Debug)]
pub(crate) struct Entry {
    seq: u64,
    from: SocketAddr,
    to: SocketAddr,
    pub(crate) head: OnceLock<Vec<u8>>,
    pub(crate) server_name: OnceLock<String>,
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) ended: AtomicBool,
}

impl Ledger {
    pub(crate) fn mark(&self) -> u64 {
        self.seq.load(Ordering::SeqCst)
    }

    pub(crate) fn query(&self, query: impl FnOnce(u64) -> Query) {
        self.add(&self.queries, query);
    }

    pub(crate) fn arrival(&self, arrival: impl FnOnce(u64) -> Arrival) {
        self.add(&self.arrivals, arrival);
    }

    pub(crate) fn request(&self, request: impl FnOnce(u64) -> Request) {
        self.add(&self.requests, request);
    }

    pub(crate) fn connection(&self, from: SocketAddr, to: SocketAddr) -> Arc<Entry> {
        let make = |seq| {
            Arc::new(Entry {
                seq,
                from,
                to,
                head: OnceLock::new(),
                server_name: OnceLock::new(),
                received: AtomicU64::new(0),
                sent: AtomicU64::new(0),
                ended: AtomicBool::new(false),
            })
        };
        self.add(&self.connections, make)
    }

    /// Something that had to be written down was lost.
    pub(crate) fn lost(&self) {
        self.full.store(true, Ordering::SeqCst);
    }

    pub(crate) fn queries(&self, since: u64, name: Option<&str>) -> Result<Vec<Query>, String> {
        let name = name.map(plain);
        self.since(&self.queries, |query| {
            let below = |name: &String| {
                query
                    .name
                    .strip_suffix(name.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            };
            (query.seq > since && name.as_ref().is_none_or(below)).then(|| query.clone())
        })
    }

    pub(crate) fn arrivals(&self, since: u64, to: Option<IpAddr>) -> Result<Vec<Arrival>, String> {
        self.since(&self.arrivals, |arrival| {
            (arrival.seq > since && to.is_none_or(|to| to == arrival.to)).then(|| arrival.clone())
        })
    }

    pub(crate) fn connections(&self, since: u64, to: Option<IpAddr>) -> Result<Vec<Connection>, String> {
        self.since(&self.connections, |entry| {
            (entry.seq > since && to.is_none_or(|to| to == entry.to.ip())).then(|| entry.snapshot())
        })
    }

    pub(crate) fn requests(&self, since: u64, host: Option<&str>) -> Result<Vec<Request>, String> {
        let host = host.map(plain);
        self.since(&self.requests, |request| {
            let same = host.as_ref().is_none_or(|host| *host == request.host);
            (request.seq > since && same).then(|| request.clone())
        })
    }

    fn since<T, R>(&self, list: &Mutex<Vec<T>>, pick: impl FnMut(&T) -> Option<R>) -> Result<Vec<R>, String> {
        if self.full.load(Ordering::SeqCst) {
            return Err(format!("more came than is kept ({LIMIT} of a kind)"));
        }
        Ok(lock(list).iter().filter_map(pick).collect())
    }

    fn add<T: Clone>(&self, list: &Mutex<Vec<T>>, make: impl FnOnce(u64) -> T) -> T {
        let mut list = lock(list);
        let record = make(self.seq.fetch_add(1, Ordering::SeqCst) + 1);
        if list.len() < LIMIT {
            list.push(record.clone());
        } else {
            self.lost();
        }
        record
    }
}

impl Entry {
    fn snapshot(&self) -> Connection {
        Connection {
            seq: self.seq,
            from: self.from,
            to: self.to,
            head: self.head.get().cloned().unwrap_or_default(),
            server_name: self.server_name.get().cloned(),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            ended: self.ended.load(Ordering::Relaxed),
        }
    }
}

/// A name as it is kept: lower case, without the last dot.
pub(crate) fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// A record is whole also where a task died.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
