use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbar_core::{DecisionReason, Destination, Protocol};
use tokio::sync::Notify;

#[cfg(test)]
mod tests;

/// How long those that are cut may take to end before whoever cuts goes on without them. Each ends at its next step.
const CUT_WAIT: Duration = Duration::from_secs(2);
/// Addresses that one flow is remembered by: a kept-alive HTTP connection may dial again and again.
const ADDRESSES: usize = 8;

/// What is open.
#[derive(Debug)]
pub(crate) struct Flows {
    open: Mutex<HashMap<u64, Arc<Track>>>,
    next: AtomicU64,
    ended: Notify,
    started: Instant,
}

/// An open flow. Ends with this value.
#[derive(Debug)]
pub(crate) struct Flow {
    number: u64,
    flows: Arc<Flows>,
    track: Arc<Track>,
}

/// What is known about an open flow.
#[derive(Debug)]
pub(crate) struct Track {
    protocol: Protocol,
    about: Mutex<About>,
    cut: AtomicU8,
    cut_now: Notify,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    /// Milliseconds since the gateway started.
    active: AtomicU64,
    started: Instant,
}

/// Where a flow goes and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// Where to, once it is known.
    pub(crate) to: Option<(Destination, u16)>,
    /// Whether what it carries is read.
    pub(crate) reading: Reading,
    /// Addresses that it led to.
    pub(crate) addresses: Vec<IpAddr>,
}

/// How much of a flow the gateway reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Its start at most.
    #[default]
    Start,
    /// Each request, in the clear.
    Requests,
    /// Each request, in TLS that the gateway speaks itself.
    Intercepted,
}

/// Why a flow is cut; the reasons that there are, in the place of a number.
const CUTS: &[DecisionReason] = &[DecisionReason::PolicyChanged, DecisionReason::UsedUp];

impl Flows {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            open: Mutex::default(),
            next: AtomicU64::default(),
            ended: Notify::new(),
            started: Instant::now(),
        })
    }

    /// A flow of which nothing is known yet, unless there are `most` of the protocol already. It is there to be cut before it is judged, so that
    /// none is judged by a policy that is about to change and missed by the change.
    pub(crate) fn begin(self: &Arc<Self>, protocol: Protocol, most: usize) -> Option<Flow> {
        let mut open = self.lock();
        if open.values().filter(|track| track.protocol == protocol).count() >= most {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let track = Arc::new(Track {
            protocol,
            about: Mutex::default(),
            cut: AtomicU8::new(0),
            cut_now: Notify::new(),
            bytes_out: AtomicU64::default(),
            bytes_in: AtomicU64::default(),
            active: AtomicU64::new(millis(self.started.elapsed())),
            started: self.started,
        });
        open.insert(number, track.clone());
        Some(Flow { number, flows: self.clone(), track })
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Cuts those that are known and not to `stay`, and waits until they are over. Answers those that are not after a while.
    pub(crate) async fn cut_unless(&self, stay: impl Fn(&About, Protocol) -> bool) -> Vec<u64> {
        let doomed: Vec<u64> = {
            let open = self.lock();
            let not_staying = open.iter().filter(|(_, track)| {
                let about = track.about();
                about.to.is_some() && !stay(&about, track.protocol)
            });
            not_staying
                .map(|(number, track)| {
                    track.cut(DecisionReason::PolicyChanged);
                    *number
                })
                .collect()
        };
        self.await_end(doomed).await
    }

    /// Waits until these are over, and answers those that are not after a while. Each was told, and ends at the next step of the gateway's thread.
    pub(crate) async fn await_end(&self, mut doomed: Vec<u64>) -> Vec<u64> {
        let over = async {
            loop {
                let ended = self.ended.notified();
                tokio::pin!(ended);
                ended.as_mut().enable();
                if !doomed.iter().any(|number| self.lock().contains_key(number)) {
                    return;
                }
                ended.await;
            }
        };
        if tokio::time::timeout(CUT_WAIT, over).await.is_ok() {
            return Vec::new();
        }
        let open = self.lock();
        doomed.retain(|number| open.contains_key(number));
        doomed
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Track>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flow {
    pub(crate) fn track(&self) -> &Arc<Track> {
        &self.track
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.flows.lock().remove(&self.number);
        self.flows.ended.notify_waiters();
    }
}

impl Track {
    /// Tells where it goes.
    pub(crate) fn set_destination(&self, destination: &Destination, port: u16) {
        self.about().to = Some((destination.clone(), port));
    }

    /// Tells how it is read.
    pub(crate) fn set_reading(&self, reading: Reading) {
        self.about().reading = reading;
    }

    /// Tells an address that it is about to go to. To be told before the policy is asked about it.
    pub(crate) fn add_address(&self, address: IpAddr) {
        let mut about = self.about();
        if !about.addresses.contains(&address) {
            if about.addresses.len() == ADDRESSES {
                about.addresses.remove(0);
            }
            about.addresses.push(address);
        }
    }

    /// The address that it went to last.
    pub(crate) fn last_address(&self) -> Option<IpAddr> {
        self.about().addresses.last().copied()
    }

    /// Ends it as soon as can be.
    pub(crate) fn cut(&self, reason: DecisionReason) {
        let number = CUTS.iter().position(|cut| *cut == reason).unwrap_or(0);
        let number = u8::try_from(number + 1).unwrap_or(1);
        let _already = self.cut.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
        self.cut_now.notify_waiters();
    }

    /// Why it is cut, if it is.
    pub(crate) fn is_cut(&self) -> Option<DecisionReason> {
        CUTS.get(usize::from(self.cut.load(Ordering::Acquire)).checked_sub(1)?).copied()
    }

    /// Waits until it is cut.
    pub(crate) async fn when_cut(&self) -> DecisionReason {
        loop {
            let cut = self.cut_now.notified();
            tokio::pin!(cut);
            cut.as_mut().enable();
            if let Some(reason) = self.is_cut() {
                return reason;
            }
            cut.await;
        }
    }

    /// Waits until nothing has passed for `idle`.
    pub(crate) async fn when_idle(&self, idle: Duration) {
        loop {
            let quiet = self
                .started
                .elapsed()
                .saturating_sub(Duration::from_millis(self.active.load(Ordering::Relaxed)));
            let Some(left) = idle.checked_sub(quiet).filter(|left| !left.is_zero()) else { return };
            tokio::time::sleep(left).await;
        }
    }

    pub(crate) fn count_out(&self, bytes: u64) {
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
        self.active.store(millis(self.started.elapsed()), Ordering::Relaxed);
    }

    pub(crate) fn count_in(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        self.active.store(millis(self.started.elapsed()), Ordering::Relaxed);
    }

    /// Bytes that left the sandbox, and that came in.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.bytes_out.load(Ordering::Relaxed), self.bytes_in.load(Ordering::Relaxed))
    }

    fn about(&self) -> MutexGuard<'_, About> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
