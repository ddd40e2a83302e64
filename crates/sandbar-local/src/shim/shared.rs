use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sandbar_core::{KillCause, LastKill};
use sandbar_engine::Cgroup;
use tokio::sync::{Notify, oneshot, watch};

use super::egress::Egress;
use super::limits::Counters;
use super::main_command::Progress;
use super::ports::Ports;
use crate::audit;
use crate::error::{ErrorForm, busy, held};
use crate::home::{Folder, Home, Lock, StoredRecord, now};
use crate::store::LayerId;
use crate::teardown::Layers;

/// What the tasks of a shim have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) home: Home,
    pub(super) folder: Folder,
    pub(super) lock: Lock,
    pub(super) cgroup: Option<Cgroup>,
    /// What becomes of layers that nothing was written to.
    pub(super) untouched_layers: Layers,
    /// The agent: another one after a fork that gave the sandbox new layers.
    pidfd: Mutex<Arc<OwnedFd>>,
    pub(super) ports: Ports,
    pub(super) egress: Egress,
    pub(super) counters: Mutex<Counters>,
    /// Bytes on disk of layers that are moments of this sandbox or one before it, as far as they were measured.
    pub(super) moments: Mutex<BTreeMap<LayerId, u64>>,
    /// Up to where the main command was followed.
    pub(super) main_progress: watch::Sender<Progress>,
    /// Held while limits change: one change at a time.
    pub(super) resizing: tokio::sync::Mutex<()>,
    /// Held while it goes to sleep or wakes up.
    turning: tokio::sync::Mutex<()>,
    /// Told when the deadline is another.
    pub(super) rescheduled: Notify,
    /// Told when somebody asks for the end.
    pub(super) ending: Notify,
    enders: Mutex<Vec<oneshot::Sender<Ended>>>,
    /// Answers about the end that are still to be written.
    answering: AtomicUsize,
    /// Told when one was written.
    answered: Notify,
    record: Mutex<StoredRecord>,
}

/// What came of the end.
pub(super) type Ended = Result<(), ErrorForm>;

impl Shared {
    pub(super) fn new(
        home: Home,
        folder: Folder,
        lock: Lock,
        record: StoredRecord,
        cgroup: Option<Cgroup>,
        pidfd: OwnedFd,
    ) -> Self {
        // What was counted before this shim is no news.
        let counters = Counters::since(cgroup.as_ref());
        Self {
            home,
            folder,
            lock,
            cgroup,
            untouched_layers: Layers::Removed,
            pidfd: Mutex::new(Arc::new(pidfd)),
            ports: Ports::default(),
            egress: Egress::default(),
            counters: Mutex::new(counters),
            moments: Mutex::default(),
            main_progress: watch::Sender::default(),
            resizing: tokio::sync::Mutex::default(),
            turning: tokio::sync::Mutex::default(),
            rescheduled: Notify::new(),
            ending: Notify::new(),
            enders: Mutex::default(),
            answering: AtomicUsize::new(0),
            answered: Notify::new(),
            record: Mutex::new(record),
        }
    }

    /// Takes the turn: from here on nobody else copies it, puts it to sleep or wakes it. Whoever has it may need long, as a copy takes its time; that is waited for
    /// no longer than `patience`.
    pub(super) async fn turn(
        &self,
        patience: Duration,
        operation: &'static str,
    ) -> sandbar_core::Result<tokio::sync::MutexGuard<'_, ()>> {
        let Ok(turn) = tokio::time::timeout(patience, self.turning.lock()).await else {
            let id = self.folder.id().as_str();
            return Err(match self.look(|record| (record.state, record.private.pending.is_some())) {
                (state, true) => held(operation, id, state, patience),
                (state, false) => busy(operation, id, state, patience),
            });
        };
        Ok(turn)
    }

    /// The agent as it is now.
    pub(super) fn agent(&self) -> Arc<OwnedFd> {
        Arc::clone(&hold(&self.pidfd))
    }

    /// Another agent is the sandbox' from now on.
    pub(super) fn set_agent(&self, pidfd: OwnedFd) {
        *hold(&self.pidfd) = Arc::new(pidfd);
    }

    /// The record as it is now.
    pub(super) fn record(&self) -> StoredRecord {
        hold(&self.record).clone()
    }

    /// Looks at a part of the record.
    pub(super) fn look<T>(&self, look: impl FnOnce(&StoredRecord) -> T) -> T {
        look(&hold(&self.record))
    }

    /// Changes the record on disk, and then in memory: what could not be written did not change.
    pub(super) fn update(&self, change: impl FnOnce(&mut StoredRecord)) -> std::io::Result<()> {
        let mut record = hold(&self.record);
        let mut changed = record.clone();
        change(&mut changed);
        self.folder.write_record(&changed)?;
        *record = changed;
        Ok(())
    }

    /// When the sandbox ends by itself.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        hold(&self.record).deadline
    }

    /// Notes that a limit ended something. On a full disk the note is lost to the record, and not to who asks the shim.
    pub(super) fn note_kill(&self, cause: KillCause, detail: String) {
        self.look(|record| audit::killed(record, cause, &detail));
        let kill = LastKill { cause, at: now(), detail };
        hold(&self.counters).note(kill.clone());
        let _ = self.update(|record| record.last_kill = Some(kill));
    }

    /// Asks for the end, and how it went.
    pub(super) fn ask_end(&self) -> oneshot::Receiver<Ended> {
        let (ended, answer) = oneshot::channel();
        hold(&self.enders).push(ended);
        self.ending.notify_one();
        answer
    }

    /// Whether somebody asked for the end.
    pub(super) fn is_asked_to_end(&self) -> bool {
        !hold(&self.enders).is_empty()
    }

    /// An answer about the end that is to be written: it counts until what this gives is dropped.
    pub(super) fn answer(&self) -> Answering<'_> {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(self)
    }

    /// Waits until all answers about the end are written.
    pub(super) async fn all_answered(&self) {
        while self.answering.load(Ordering::Relaxed) > 0 {
            self.answered.notified().await;
        }
    }

    /// Tells who asked for the end how it went. It was one destruction: the first who asked brought it about, the others look again and find
    /// nothing.
    pub(super) fn tell_ended(&self, outcome: &sandbar_core::Result<()>) {
        let mut enders = std::mem::take(&mut *hold(&self.enders));
        if outcome.is_ok() {
            enders.truncate(1);
        }
        for ender in enders {
            let _ = ender.send(match outcome {
                Ok(()) => Ok(()),
                Err(error) => Err(ErrorForm::from(error)),
            });
        }
    }
}

/// See [`Shared::answer`].
#[derive(Debug)]
pub(super) struct Answering<'a>(&'a Shared);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
        self.0.answered.notify_one();
    }
}

/// Takes a lock; a task that panicked while it held one changed nothing half.
pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
