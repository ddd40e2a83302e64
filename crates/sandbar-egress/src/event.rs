use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sandbar_core::{Decision, DecisionKind, DecisionReason, Destination, EgressCounters, Verdict};

use crate::budget::Budget;
use crate::ruling::Ruling;

#[cfg(test)]
mod tests;

/// Where decisions go.
pub trait DecisionSink: Send + Sync {
    /// Takes one. Does not wait: what there is no room for is dropped.
    fn tell(&self, decision: Decision);
}

/// How long decisions of the same kind are counted before they are told again.
const WINDOW: Duration = Duration::from_secs(5);
/// Kinds that are counted apart at once; more of them share one, without names.
const KINDS: usize = 256;
/// Decisions told per second in the long run: at some 300 bytes each, 30 KB a second are the most that a flood writes.
const TOLD_PER_SECOND: u32 = 100;
/// Decisions told at once, after a quiet time.
const TOLD_BURST: u32 = 1000;

/// Counts decisions and tells them: the first of a kind at once, those that follow fast as one.
pub(crate) struct Recorder {
    sink: Arc<dyn DecisionSink>,
    counters: Counters,
    held: Mutex<Held>,
}

/// What goes on, in numbers.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    allowed: AtomicU64,
    denied: AtomicU64,
    failed: AtomicU64,
    questions: AtomicU64,
    /// Bytes that left the sandbox.
    pub(crate) bytes_out: AtomicU64,
    /// Bytes that came in.
    pub(crate) bytes_in: AtomicU64,
}

#[derive(Debug)]
struct Held {
    kinds: HashMap<Kind, Repeats>,
    told: Budget,
}

/// What makes decisions the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    what: DecisionKind,
    verdict: Verdict,
    reason: DecisionReason,
    about: Option<(Option<String>, Option<IpAddr>, Option<u16>)>,
}

#[derive(Debug)]
struct Repeats {
    last: Decision,
    more: u64,
    until: Instant,
}

impl Recorder {
    pub(crate) fn new(sink: Arc<dyn DecisionSink>) -> Self {
        let told = Budget::new(TOLD_BURST, TOLD_PER_SECOND, Duration::from_secs(1), Instant::now());
        let held = Mutex::new(Held { kinds: HashMap::new(), told });
        Self { sink, counters: Counters::default(), held }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts a question to the resolver, however it is answered.
    pub(crate) fn asked(&self) {
        self.counters.questions.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a decision and tells it, now or with others.
    pub(crate) fn tell(&self, decision: Decision) {
        self.tell_at(decision, Instant::now());
    }

    /// Tells what was held back long enough.
    pub(crate) fn flush(&self, now: Instant) {
        let mut held = self.held();
        let mut due = Vec::new();
        held.kinds.retain(|_, repeats| {
            let is_over = repeats.until <= now;
            if is_over && repeats.more > 0 {
                due.push((repeats.last.clone(), repeats.more));
            }
            !is_over
        });
        drop(held);
        for (decision, more) in due {
            self.sink.tell(Decision { repeated: more - 1, ..decision });
        }
    }

    fn tell_at(&self, decision: Decision, now: Instant) {
        // Answers of the resolver that allow are no connections.
        let counter = match (decision.verdict, decision.kind) {
            (Verdict::Allowed, DecisionKind::Tcp | DecisionKind::Udp) => Some(&self.counters.allowed),
            (Verdict::Denied, _) => Some(&self.counters.denied),
            (Verdict::Failed, _) => Some(&self.counters.failed),
            _ => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if decision.kind == DecisionKind::Policy {
            self.sink.tell(decision);
            return;
        }
        if let Some(decision) = self.held().first(decision, now) {
            self.sink.tell(decision);
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// The decision again, if it is to be told at once.
    fn first(&mut self, decision: Decision, now: Instant) -> Option<Decision> {
        let full = Kind {
            what: decision.kind,
            verdict: decision.verdict,
            reason: decision.reason,
            about: Some((decision.name.clone(), decision.address, decision.port)),
        };
        // The end of a flow carries its bytes: each is told, as long as there are not too many.
        let is_end = decision.verdict == Verdict::Closed;
        if !is_end && let Some(repeats) = self.kinds.get_mut(&full) {
            if now < repeats.until {
                repeats.more += 1;
                repeats.last = decision;
                return None;
            }
            let more = repeats.more;
            *repeats = Repeats { last: decision.clone(), more: 0, until: now + WINDOW };
            return Some(Decision { repeated: more, ..decision });
        }
        if self.told.take(now) && (is_end || self.kinds.len() < KINDS) {
            if !is_end {
                self.kinds.insert(full, Repeats { last: decision.clone(), more: 0, until: now + WINDOW });
            }
            return Some(decision);
        }
        let shared = Kind { about: None, ..full };
        let repeats = self.kinds.entry(shared).or_insert_with(|| Repeats {
            last: decision.clone(),
            more: 0,
            until: now + WINDOW,
        });
        repeats.more += 1;
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        let (out, into) = if repeats.more == 1 {
            (decision.bytes_out, decision.bytes_in)
        } else {
            (sum(repeats.last.bytes_out, decision.bytes_out), sum(repeats.last.bytes_in, decision.bytes_in))
        };
        repeats.last = Decision { bytes_out: out, bytes_in: into, ..decision };
        None
    }
}

impl Counters {
    pub(crate) fn read(&self, open: u64) -> EgressCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EgressCounters {
            allowed: read(&self.allowed),
            denied: read(&self.denied),
            failed: read(&self.failed),
            questions: read(&self.questions),
            open,
            bytes_out: read(&self.bytes_out),
            bytes_in: read(&self.bytes_in),
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("counters", &self.counters).finish_non_exhaustive()
    }
}

/// A decision about nothing yet.
pub(crate) fn decision(kind: DecisionKind, verdict: Verdict, reason: DecisionReason) -> Decision {
    Decision {
        at: Timestamp::now(),
        kind,
        verdict,
        reason,
        name: None,
        address: None,
        port: None,
        rule: None,
        detail: None,
        bytes_out: None,
        bytes_in: None,
        repeated: 0,
    }
}

/// The decision that a ruling about a destination is.
pub(crate) fn ruled(kind: DecisionKind, ruling: &Ruling, destination: &Destination, port: u16) -> Decision {
    let (name, address) = match destination {
        Destination::Name(name) => (Some(name.to_string()), None),
        Destination::Address(address) => (None, Some(*address)),
    };
    Decision {
        name,
        address,
        port: Some(port),
        rule: ruling.rule.as_deref().map(ToOwned::to_owned),
        ..decision(kind, ruling.verdict, ruling.reason)
    }
}
