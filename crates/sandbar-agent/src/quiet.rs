//! Nothing going on: before this agent is replaced by another, which knows nothing of what was begun with this one.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::state::State;
use crate::volatile::Volatile;

/// How long what is going on may take to end; who waits for the answer has something else to do then.
const PATIENCE: Duration = Duration::from_millis(300);
/// Between two looks whether all came to its end.
const LOOK: Duration = Duration::from_millis(1);
/// How long nobody is served: whoever asked for it replaces this agent long before that, or never does.
const BOUND: Duration = Duration::from_secs(5);

/// Whether connections are served.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    /// Connections that were accepted and did not end.
    open: Cell<usize>,
    /// Since when nobody is served.
    since: Cell<Option<Instant>>,
    /// Whether this agent knows something that another would not.
    never: Cell<bool>,
    /// What there was of what goes with this agent when it began.
    at_first: Volatile,
    changed: Notify,
}

impl Quiet {
    pub(crate) fn new() -> Self {
        Self { at_first: Volatile::look(), ..Self::default() }
    }

    /// Lets what goes on come to its end, and lets nothing begin; `false` means that something went on for too long, and all is served again.
    pub(crate) async fn begin(&self, state: &Rc<State>) -> bool {
        if self.never.get() || self.since.get().is_some() {
            return false;
        }
        let since = Instant::now();
        self.since.set(Some(since));
        self.changed.notify_waiters();
        let end = since + PATIENCE;
        while self.open.get() > 0 || state.registry.len() > 0 {
            if Instant::now() >= end {
                self.end();
                return false;
            }
            // What ended is taken note of a moment later, and nothing tells of that.
            let _ = timeout_at(Instant::now() + LOOK, self.changed.notified()).await;
        }
        if !Volatile::look().is_as(&self.at_first) {
            self.end();
            return false;
        }
        let state = Rc::clone(state);
        tokio::task::spawn_local(async move {
            sleep(BOUND).await;
            if state.quiet.since.get() == Some(since) {
                state.quiet.end();
            }
        });
        true
    }

    /// Serves again.
    pub(crate) fn end(&self) {
        self.since.set(None);
        self.changed.notify_waiters();
    }

    /// From now on this agent can't be replaced.
    pub(crate) fn never(&self) {
        self.never.set(true);
    }

    /// Whether nothing is to begin.
    pub(crate) fn is_begun(&self) -> bool {
        self.since.get().is_some()
    }

    /// Waits until connections are served.
    pub(crate) async fn over(&self) {
        loop {
            let changed = self.changed.notified();
            if self.since.get().is_none() {
                return;
            }
            changed.await;
        }
    }

    /// Answers once a connection is to end as soon as nothing goes on in it.
    pub(crate) async fn wanted(&self) {
        loop {
            let changed = self.changed.notified();
            changed.await;
            if self.since.get().is_some() {
                return;
            }
        }
    }

    /// Counts a connection until what this gives is dropped.
    pub(crate) fn count(state: &Rc<State>) -> Counted {
        state.quiet.open.set(state.quiet.open.get() + 1);
        Counted(Rc::clone(state))
    }
}

/// See [`Quiet::count`].
pub(crate) struct Counted(Rc<State>);

impl Drop for Counted {
    fn drop(&mut self) {
        let quiet = &self.0.quiet;
        quiet.open.set(quiet.open.get().saturating_sub(1));
        quiet.changed.notify_waiters();
    }
}
