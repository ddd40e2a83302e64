use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbar_core::{ErrorKind, Result, Sandbox, SandboxId, SandboxRecord, State};
use tokio_util::sync::CancellationToken;

use super::pool::Pool;
use crate::marks::Marks;
use crate::seal::Seal;

/// How long a sandbox that was seen running is taken to run without another look. One that somebody else puts to sleep in that time is noticed by
/// [`WATCH`].
const LEASE: Duration = Duration::from_millis(250);
/// How often a sandbox with requests under way is looked at: streams of one that fell asleep end after that.
const WATCH: Duration = Duration::from_millis(400);
/// Ports of one sandbox whose idle connections are kept.
const MAX_PORTS: usize = 64;

/// A sandbox that requests were for: its handle, what the server remembers of it, and idle connections into it.
pub(super) struct Resident {
    pub(super) id: SandboxId,
    pub(super) sandbox: Arc<dyn Sandbox>,
    pub(super) marks: Marks,
    pub(super) guest_token: String,
    pub(super) traffic_token: String,
    pub(super) agent: Pool,
    ports: Mutex<HashMap<u16, Arc<Pool>>>,
    /// Until when it is taken to run.
    lease: Mutex<Option<Instant>>,
    /// Ends with the time that it runs: everything under way ends with it.
    awake: Mutex<CancellationToken>,
    /// Requests under way.
    flights: AtomicUsize,
    is_watched: AtomicBool,
    last_used: Mutex<Instant>,
    /// One waking at a time.
    pub(super) waking: tokio::sync::Mutex<()>,
}

/// What a look found.
#[derive(Debug)]
pub(super) enum Seen {
    /// It runs.
    Running,
    /// It sleeps and could be woken.
    Sleeping(Box<SandboxRecord>),
    /// It is about to be something else.
    InTransition,
    /// There is nothing that requests could be for.
    Gone,
}

impl fmt::Debug for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resident").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Resident {
    pub(super) fn new(sandbox: Arc<dyn Sandbox>, marks: Marks, seal: &Seal) -> Self {
        let id = sandbox.id().clone();
        Self {
            guest_token: seal.guest_token(&id),
            traffic_token: seal.traffic_token(&id),
            id,
            sandbox,
            marks,
            agent: Pool::of_agent(),
            ports: Mutex::default(),
            lease: Mutex::default(),
            awake: Mutex::default(),
            flights: AtomicUsize::new(0),
            is_watched: AtomicBool::new(false),
            last_used: Mutex::new(Instant::now()),
            waking: tokio::sync::Mutex::default(),
        }
    }

    /// Whether it was seen running a moment ago.
    pub(super) fn is_leased(&self) -> bool {
        let now = Instant::now();
        *hold(&self.last_used) = now;
        hold(&self.lease).is_some_and(|until| now < until)
    }

    /// Looks, and remembers it.
    pub(super) async fn look(&self) -> Result<Seen> {
        let record = match self.sandbox.record().await {
            Ok(record) => record,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.end();
                return Ok(Seen::Gone);
            }
            Err(error) => return Err(error),
        };
        Ok(self.seen(record))
    }

    /// What a record says that was read just now.
    pub(super) fn seen(&self, record: SandboxRecord) -> Seen {
        match record.state {
            State::Running => {
                let left = record.deadline.map(|at| at.duration_since(jiff::Timestamp::now()));
                // At its deadline it is looked at again.
                let lease =
                    left.map_or(LEASE, |left| Duration::try_from(left).unwrap_or_default().min(LEASE));
                *hold(&self.lease) = Some(Instant::now() + lease);
                Seen::Running
            }
            State::Sleeping => {
                self.end();
                Seen::Sleeping(Box::new(record))
            }
            State::Creating => Seen::InTransition,
            _ => {
                self.end();
                Seen::Gone
            }
        }
    }

    /// It does not run any more: what is under way ends abruptly, and the next request looks first.
    pub(super) fn end(&self) {
        *hold(&self.lease) = None;
        let old = std::mem::take(&mut *hold(&self.awake));
        old.cancel();
    }

    /// Ends with the time that it runs now.
    pub(super) fn awake(&self) -> CancellationToken {
        hold(&self.awake).clone()
    }

    /// Idle connections to a port.
    pub(super) fn port(&self, port: u16) -> Arc<Pool> {
        let mut ports = hold(&self.ports);
        if let Some(pool) = ports.get(&port) {
            return Arc::clone(pool);
        }
        if ports.len() >= MAX_PORTS {
            ports.retain(|_, pool| Arc::strong_count(pool) > 1);
        }
        Arc::clone(ports.entry(port).or_insert_with(|| Arc::new(Pool::of_port())))
    }

    /// Counts a request as under way until the answer is dropped, and has it looked after as long.
    pub(super) fn flight(self: &Arc<Self>, residents: &super::Guests) -> Flight {
        self.flights.fetch_add(1, Ordering::AcqRel);
        let flight = Flight(Arc::clone(self));
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            let resident = Arc::clone(self);
            residents.spawn(async move { resident.watch().await });
        }
        flight
    }

    /// Looks from time to time as long as something is under way. Who can't look ends nothing.
    async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(WATCH).await;
            if self.flights.load(Ordering::Acquire) == 0 {
                self.is_watched.store(false, Ordering::Release);
                // One that began in between found it watched.
                if self.flights.load(Ordering::Acquire) == 0 || self.is_watched.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
            if let Err(error) = self.look().await {
                tracing::debug!(%error, sandbox = %self.id, "a sandbox could not be looked at");
            }
        }
    }

    /// Whether nothing is under way and nothing was for `time`.
    pub(super) fn is_idle_for(&self, time: Duration) -> bool {
        self.flights.load(Ordering::Acquire) == 0 && hold(&self.last_used).elapsed() >= time
    }

    /// Closes connections that were idle for too long.
    pub(super) fn sweep(&self) {
        self.agent.sweep();
        hold(&self.ports).retain(|_, pool| {
            pool.sweep();
            Arc::strong_count(pool) > 1 || !pool.is_empty()
        });
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Flight(Arc<Resident>);

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.flights.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
