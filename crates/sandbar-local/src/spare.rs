//! A shim that has prepared a sandbox before anybody asked for it.

use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::config::Spare;
use crate::helper::{self, Shim};
use crate::shim::protocol::{Shape, Task};

/// Creations of a provider before it keeps a spare: who makes a second sandbox is likely to make a third, and a command that makes one and ends
/// would have the trouble for nothing.
const BEFORE: usize = 2;

/// At most one prepared sandbox.
#[derive(Debug)]
pub(crate) struct Spares {
    wanted: Spare,
    created: AtomicUsize,
    place: Mutex<Place>,
}

#[derive(Debug, Default)]
struct Place {
    kept: Option<Kept>,
    /// Whether one is being started.
    begun: bool,
}

#[derive(Debug)]
struct Kept {
    shape: Shape,
    shim: Shim,
}

impl Spares {
    pub(crate) fn new(wanted: Spare) -> Self {
        Self { wanted, created: AtomicUsize::new(0), place: Mutex::default() }
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
        if self.wanted == Spare::None || !enough || !shape.mounts.is_empty() {
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
