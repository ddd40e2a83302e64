//! A shim that has prepared a sandbox before anybody asked for it.

use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Spare;
use crate::helper::{self, Shim};
use crate::shim::protocol::{Shape, Task};

/// Creations of a provider before it keeps a spare: who makes a second sandbox is likely to make a third, and a command that makes one and ends
/// would have the trouble for nothing.
const BEFORE: usize = 2;
/// How long a preparation waits for the new sandbox to be destroyed: beside the first command it would take the processor that the command needs, and
/// whoever runs one short command has destroyed it by then.
const PATIENCE: Duration = Duration::from_millis(10);

/// At most one prepared sandbox.
#[derive(Debug)]
pub(crate) struct Spares {
    wanted: Spare,
    created: AtomicUsize,
    place: Mutex<Place>,
    moment: Arc<Moment>,
}

#[derive(Debug, Default)]
struct Place {
    kept: Option<Kept>,
    /// Whether one is being started.
    begun: bool,
}

/// When to prepare: once something was destroyed, or when nothing was for a while.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    destroyed: Mutex<u64>,
    changed: Condvar,
}

impl Moment {
    /// What [`Self::await_after`] counts from.
    pub(crate) fn now(&self) -> u64 {
        *self.destroyed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, for the patience at most, until something was destroyed after `since`.
    pub(crate) fn await_after(&self, since: u64) {
        let end = Instant::now() + PATIENCE;
        let mut destroyed = self.destroyed.lock().unwrap_or_else(PoisonError::into_inner);
        while *destroyed == since {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            destroyed = self.changed.wait_timeout(destroyed, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn comes(&self) {
        *self.destroyed.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }
}

#[derive(Debug)]
struct Kept {
    shape: Shape,
    shim: Shim,
}

impl Spares {
    pub(crate) fn new(wanted: Spare) -> Self {
        Self { wanted, created: AtomicUsize::new(0), place: Mutex::default(), moment: Arc::default() }
    }

    /// When to call [`Self::prepare`].
    pub(crate) fn moment(&self) -> Arc<Moment> {
        Arc::clone(&self.moment)
    }

    /// Notes a destruction.
    pub(crate) fn destroyed(&self) {
        self.moment.comes();
    }

    /// Notes that nobody prepares what [`Self::created`] asked for.
    pub(crate) fn unprepared(&self) {
        self.hold().begun = false;
    }

    /// Takes the prepared one, if it is of this shape. One that is not, or that ended, goes to `abandon`: the next will be.
    pub(crate) fn take(&self, shape: &Shape, abandon: impl Fn(Child)) -> Option<Shim> {
        let Kept { shape: prepared, shim } = self.hold().kept.take()?;
        if prepared == *shape && !shim.is_over() {
            return Some(shim);
        }
        abandon(shim.dismiss());
        None
    }

    /// Notes a creation; `true` means that the next one is to be prepared, by the caller and with [`Self::prepare`].
    pub(crate) fn created(&self, shape: &Shape) -> bool {
        // What is mounted is looked at when it is asked for, and not before.
        let enough = self.created.fetch_add(1, Ordering::Relaxed) + 1 >= BEFORE;
        if self.wanted == Spare::None || !enough || !shape.mounts.is_empty() || !shape.volumes.is_empty() {
            return false;
        }
        let mut place = self.hold();
        let free = place.kept.is_none() && !place.begun;
        place.begun |= free;
        free
    }

    /// Starts a shim that prepares a sandbox of this shape. It takes as long as starting a process; the rest is that one's work.
    pub(crate) fn prepare(&self, executable: &Path, home: &Path, shape: Shape, abandon: impl Fn(Child)) {
        const OPERATION: &str = "create";
        let task = Task::Prepare(Box::new(shape.clone()));
        // What goes wrong goes wrong again when it is asked for, and is told then.
        let started = helper::line(home, task, OPERATION)
            .and_then(|line| Shim::spawn(executable, home, OPERATION).map(|shim| (shim, line)));
        let mut kept = None;
        if let Ok((shim, line)) = started {
            if shim.tell(&line) {
                kept = Some(Kept { shape, shim });
            } else {
                abandon(shim.dismiss());
            }
        }
        let mut place = self.hold();
        place.begun = false;
        place.kept = kept;
    }

    fn hold(&self) -> std::sync::MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
