use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sandbar_wire::envd::{Channel, EndEvent, RpcError};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::ring::Ring;
use crate::config::MainConfig;
use crate::host::unix_ms;

/// How long output waits for a host side that was there a moment ago, so that a burst is not lost to it. Less than other readers of the command's
/// output would wait for this one.
const FOLLOW_PATIENCE: Duration = Duration::from_millis(200);
/// How long after its last question the host side counts as there.
const FOLLOWED: Duration = Duration::from_secs(2);

/// The main command of the sandbox.
pub(crate) struct Main {
    pub(super) config: MainConfig,
    state: RefCell<State>,
    /// Rises with each change of the state.
    version: Cell<u64>,
    pub(super) ring: RefCell<Ring>,
    /// Told when the state changes or something is said.
    pub(super) changed: Notify,
    /// Up to where the host side had the output, and when it last asked.
    follower: Cell<(u64, Option<Instant>)>,
    /// Told when the host side asks.
    asked: Notify,
}

/// How it is.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) started_ms: Option<u64>,
    pub(super) restarts: u64,
    pub(super) end: Option<EndEvent>,
    pub(super) problem: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Its first start is under way.
    Starting,
    /// It could not be started the first time.
    Failed(RpcError),
    Running(u32),
    /// Started again at this time, in Unix milliseconds.
    BackingOff(u64),
    Exited,
}

impl Main {
    pub(crate) fn new(config: MainConfig) -> Rc<Self> {
        let state = State { phase: Phase::Starting, started_ms: None, restarts: 0, end: None, problem: None };
        Rc::new(Self {
            config,
            state: RefCell::new(state),
            version: Cell::new(1),
            ring: RefCell::default(),
            changed: Notify::new(),
            follower: Cell::new((0, None)),
            asked: Notify::new(),
        })
    }

    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    pub(super) fn version(&self) -> u64 {
        self.version.get()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.borrow_mut());
        self.version.set(self.version.get() + 1);
        self.changed.notify_waiters();
    }

    /// Keeps what was said. A host side that is there gets the time to take what would be dropped.
    pub(super) async fn say(&self, channel: Channel, bytes: Bytes) {
        let limit = Instant::now() + FOLLOW_PATIENCE;
        loop {
            let asked = self.asked.notified();
            let (had, last) = self.follower.get();
            let is_there = last.is_some_and(|last| last.elapsed() < FOLLOWED);
            if !is_there || !self.ring.borrow().would_drop(had, &bytes) {
                break;
            }
            if timeout_at(limit, asked).await.is_err() {
                self.follower.set((had, None));
                break;
            }
        }
        self.ring.borrow_mut().push(unix_ms(), channel, bytes);
        self.changed.notify_waiters();
    }

    /// The host side asks, and has everything up to `from`.
    pub(super) fn note_follower(&self, from: u64) {
        self.follower.set((from, Some(Instant::now())));
        self.asked.notify_waiters();
    }
}
