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
/// Kinds of denials, failures and answers that are counted apart at once; more of them share one, without names.
const REFUSALS: usize = 256;
/// Kinds of what passed that are counted apart at once: more than the connections that may be open, and those that may begin within a window, lead to.
const PASSAGES: usize = 8192;
/// Refusals told per second in the long run, and as many ends of flows: at some 300 bytes each, 60 KB a second are the most that a flood of both
/// writes. The first of what passed is told in any case; how many connections may begin bounds that.
const TOLD_PER_SECOND: u32 = 100;
/// Of each, those told at once, after a quiet time.
const TOLD_BURST: u32 = 1000;
/// What decisions say that stand for many that have little in common.
const VARIOUS: &str = "various";

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
    /// What a program reached: a flood of anything else takes no room from it.
    passed: Shelf,
    refused: Shelf,
    ends: Budget,
}

/// Decisions that are counted.
#[derive(Debug)]
struct Shelf {
    kinds: HashMap<Kind, Repeats>,
    most: usize,
    /// Firsts that are told; without, all are for which there is room.
    firsts: Option<Budget>,
}

/// What makes decisions the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    what: DecisionKind,
    verdict: Verdict,
    reason: DecisionReason,
    about: Option<About>,
}

/// All that is told of a decision: those that are counted as one differ in nothing that it says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct About {
    name: Option<String>,
    address: Option<IpAddr>,
    port: Option<u16>,
    rule: Option<String>,
    detail: Option<String>,
}

#[derive(Debug)]
struct Repeats {
    last: Decision,
    more: u64,
    until: Instant,
}

impl Recorder {
    pub(crate) fn new(sink: Arc<dyn DecisionSink>) -> Self {
        let budget = || Budget::new(TOLD_BURST, TOLD_PER_SECOND, Duration::from_secs(1), Instant::now());
        let passed = Shelf { kinds: HashMap::new(), most: PASSAGES, firsts: None };
        let refused = Shelf { kinds: HashMap::new(), most: REFUSALS, firsts: Some(budget()) };
        let held = Mutex::new(Held { passed, refused, ends: budget() });
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
        let Held { passed, refused, .. } = &mut *held;
        for place in [passed, refused] {
            place.kinds.retain(|_, repeats| {
                let is_over = repeats.until <= now;
                if is_over && repeats.more > 0 {
                    due.push((repeats.last.clone(), repeats.more));
                }
                !is_over
            });
        }
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
        let is_end = decision.verdict == Verdict::Closed;
        // The end of a flow carries its bytes: each is told, as long as there are not too many.
        if is_end && self.ends.take(now) {
            return Some(decision);
        }
        // Answers of the resolver are no connections, and cost next to nothing to ask for.
        let is_passage = decision.kind != DecisionKind::Dns
            && matches!(decision.verdict, Verdict::Allowed | Verdict::Closed);
        let place = if is_passage { &mut self.passed } else { &mut self.refused };
        if is_end { place.count(decision, now) } else { place.first(decision, now) }
    }
}

impl Shelf {
    /// The decision again, if it is to be told at once.
    fn first(&mut self, decision: Decision, now: Instant) -> Option<Decision> {
        let kind = Kind::of(&decision);
        if let Some(repeats) = self.kinds.get_mut(&kind) {
            if now < repeats.until {
                repeats.add(&decision);
                return None;
            }
            let more = repeats.more;
            *repeats = Repeats { last: decision.clone(), more: 0, until: now + WINDOW };
            return Some(Decision { repeated: more, ..decision });
        }
        let has_room = self.kinds.len() < self.most;
        if has_room && self.firsts.as_mut().is_none_or(|budget| budget.take(now)) {
            self.kinds.insert(kind, Repeats { last: decision.clone(), more: 0, until: now + WINDOW });
            return Some(decision);
        }
        self.share(&kind, &decision, now);
        None
    }

    /// Counts a decision with its like, to be told later.
    fn count(&mut self, decision: Decision, now: Instant) -> Option<Decision> {
        let kind = Kind::of(&decision);
        if let Some(repeats) = self.kinds.get_mut(&kind) {
            repeats.add(&decision);
            return None;
        }
        if self.kinds.len() < self.most {
            self.kinds.insert(kind, Repeats { last: decision, more: 1, until: now + WINDOW });
            return None;
        }
        self.share(&kind, &decision, now);
        None
    }

    /// Counts a decision for which there is no room of its own. What it was about is not told: the others were about something else.
    fn share(&mut self, kind: &Kind, decision: &Decision, now: Instant) {
        let shared = Kind { about: None, ..kind.clone() };
        if let Some(repeats) = self.kinds.get_mut(&shared) {
            repeats.add(decision);
            return;
        }
        let detail = Some(VARIOUS.to_owned());
        let last = Decision { name: None, address: None, port: None, rule: None, detail, ..decision.clone() };
        self.kinds.insert(shared, Repeats { last, more: 1, until: now + WINDOW });
    }
}

impl Kind {
    fn of(decision: &Decision) -> Self {
        let Decision { name, address, port, rule, detail, .. } = decision.clone();
        let about = Some(About { name, address, port, rule, detail });
        Self { what: decision.kind, verdict: decision.verdict, reason: decision.reason, about }
    }
}

impl Repeats {
    fn add(&mut self, decision: &Decision) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        self.more += 1;
        self.last.at = decision.at;
        self.last.bytes_out = sum(self.last.bytes_out, decision.bytes_out);
        self.last.bytes_in = sum(self.last.bytes_in, decision.bytes_in);
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
