//! A shim that has prepared a sandbox before anybody asked for it.

use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::config::Spare;
use crate::helper::{self, Shim};
use crate::shim::protocol::{Shape, Task};

/// Creations of a provider before it keeps a spare: who makes a second sandbox is likely to make a third, and a command that makes one and ends
/// would have the trouble for nothing.
const BEFORE: usize = 2;
/// How long after a creation the next sandbox is prepared, unless one is destroyed before: the new one's first command comes first, and is over.
const LATER: Duration = Duration::from_millis(20);
/// How long starting the process of a shim may take before a creation starts its own: ten times what it takes.
const STARTING: Duration = Duration::from_millis(10);

/// At most one prepared sandbox.
#[derive(Debug)]
pub(crate) struct Spares {
    wanted: Spare,
    created: AtomicUsize,
    place: Mutex<Place>,
    /// Told when the preparation need not wait any longer.
    hurried: Arc<Notify>,
    /// Told when one was started, or could not be.
    started: Notify,
}

#[derive(Debug, Default)]
struct Place {
    kept: Option<Kept>,
    next: Next,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    None,
    /// It will be started soon.
    Planned,
    /// It is being started.
    Begun,
}

#[derive(Debug)]
struct Kept {
    shape: Shape,
    shim: Shim,
}

impl Spares {
    pub(crate) fn new(wanted: Spare) -> Self {
        Self {
            wanted,
            created: AtomicUsize::new(0),
            place: Mutex::default(),
            hurried: Arc::default(),
            started: Notify::new(),
        }
    }

    /// Takes the prepared one, if it is of this shape. One that is not, or that ended, goes to `abandon`: the next will be.
    pub(crate) async fn take(&self, shape: &Shape, abandon: impl Fn(Child)) -> Option<Shim> {
        let started = self.started.notified();
        if self.is(Next::Begun) {
            let _ = timeout(STARTING, started).await;
        }
        let Kept { shape: prepared, shim } = self.hold().kept.take()?;
        if prepared == *shape && !shim.is_over() {
            return Some(shim);
        }
        abandon(shim.dismiss());
        None
    }

    /// Notes a creation. An answer means that the next one is to be prepared, by the caller: it waits until it is time, and then calls
    /// [`Self::prepare`].
    pub(crate) fn created(&self, shape: &Shape) -> Option<impl Future<Output = ()> + Send + 'static> {
        let enough = self.created.fetch_add(1, Ordering::Relaxed) + 1 >= BEFORE;
        // What is mounted is looked at when it is asked for, and not before.
        if self.wanted == Spare::None || !enough || !shape.mounts.is_empty() {
            return None;
        }
        let mut place = self.hold();
        if place.kept.is_some() || place.next != Next::None {
            return None;
        }
        place.next = Next::Planned;
        let hurried = Arc::clone(&self.hurried);
        Some(async move {
            let _ = timeout(LATER, hurried.notified()).await;
        })
    }

    /// Notes a destruction: where one was planned, it is prepared now.
    pub(crate) fn hurry(&self) {
        let mut place = self.hold();
        if place.next == Next::Planned {
            place.next = Next::Begun;
            self.hurried.notify_one();
        }
    }

    /// Starts a shim that prepares a sandbox of this shape. It takes as long as starting a process; the rest is that one's work.
    pub(crate) fn prepare(&self, executable: &Path, home: &Path, shape: Shape, abandon: impl Fn(Child)) {
        const OPERATION: &str = "create";
        self.hold().next = Next::Begun;
        let task = Task::Prepare(Box::new(shape.clone()));
        // What goes wrong goes wrong again when it is asked for, and is told then.
        let started = helper::line(home, task, OPERATION)
            .and_then(|line| Shim::spawn(executable, OPERATION).map(|shim| (shim, line)));
        let mut kept = None;
        if let Ok((shim, line)) = started {
            if shim.tell(&line) {
                kept = Some(Kept { shape, shim });
            } else {
                abandon(shim.dismiss());
            }
        }
        self.settle(kept);
    }

    /// Where nothing came of a plan: its runtime is gone.
    pub(crate) fn give_up(&self) {
        self.settle(None);
    }

    fn settle(&self, kept: Option<Kept>) {
        {
            let mut place = self.hold();
            place.next = Next::None;
            place.kept = kept;
        }
        self.started.notify_waiters();
    }

    fn is(&self, next: Next) -> bool {
        self.hold().next == next
    }

    fn hold(&self) -> std::sync::MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
