use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::machine::Machine;
use super::world::World;
use crate::{Deadline, DeadlineMode, Error, Result, State};

/// Longest nap before looking at the clock again, so that a clock that was set does not delay a deadline for long.
const MAX_NAP: Duration = Duration::from_secs(60);

/// The task that meets a sandbox's deadline.
#[derive(Debug, Default)]
pub(super) struct Timer {
    changed: Arc<Notify>,
    task: Mutex<Option<AbortHandle>>,
}

impl Timer {
    /// Starts the task. It holds neither the provider nor the sandbox.
    pub(super) fn start(world: &Arc<World>, machine: &Arc<Machine>) {
        let task = tokio::spawn(watch_clock(
            Arc::downgrade(world),
            Arc::downgrade(machine),
            machine.timer.changed.clone(),
        ));
        *machine.timer.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
    }

    pub(super) fn changed(&self) {
        self.changed.notify_one();
    }

    pub(super) fn stop(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn watch_clock(world: Weak<World>, machine: Weak<Machine>, changed: Arc<Notify>) {
    loop {
        let deadline = match machine.upgrade() {
            Some(machine) => machine.deadline(),
            None => return,
        };
        let Some(deadline) = deadline else {
            changed.notified().await;
            continue;
        };
        let left = Duration::try_from(deadline.duration_since(Timestamp::now())).unwrap_or_default();
        if left.is_zero() {
            let (Some(world), Some(machine)) = (world.upgrade(), machine.upgrade()) else { return };
            world.meet_deadline(&machine);
            if machine.state() == State::Destroying {
                return;
            }
            continue;
        }
        // Whether it is time or the deadline changed: look again.
        let _ = tokio::time::timeout(left.min(MAX_NAP), changed.notified()).await;
    }
}

/// The deadline that `asked` and the one in force make.
pub(super) fn combine(
    now: Option<Timestamp>,
    asked: Deadline,
    mode: DeadlineMode,
) -> Result<Option<Timestamp>> {
    let asked = match asked {
        Deadline::Never => None,
        Deadline::In(duration) => Some(after(duration)?),
        Deadline::At(time) => Some(time),
    };
    if asked.is_some_and(|time| time <= Timestamp::now()) {
        return Err(Error::invalid("set deadline", "the deadline has passed already: expected a later time"));
    }
    Ok(match (mode, now, asked) {
        (DeadlineMode::ExtendOnly, None, _) => None,
        (DeadlineMode::ExtendOnly, Some(now), Some(asked)) => Some(now.max(asked)),
        (_, _, asked) => asked,
    })
}

/// The time `duration` from now.
pub(super) fn after(duration: Duration) -> Result<Timestamp> {
    Timestamp::now()
        .checked_add(duration)
        .map_err(|_| Error::invalid("set deadline", "the deadline is later than time goes: expected less"))
}
