use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::ExitStatus;
use crate::memory::run::Feed;

/// The number of an emulated process.
pub(in crate::memory) type Pid = u32;

/// How a process ended, once it has.
pub(in crate::memory) type Ended = watch::Receiver<Option<ExitStatus>>;

/// The first process number: 1 is the sandbox itself.
const FIRST_PID: Pid = 2;

/// The processes of a sandbox.
#[derive(Debug)]
pub(in crate::memory) struct ProcessTable(Mutex<Table>);

#[derive(Debug)]
struct Table {
    next: Pid,
    live: BTreeMap<Pid, Entry>,
}

/// A process that runs.
#[derive(Debug)]
pub(in crate::memory) struct Entry {
    /// The process that the contract's caller started and that this descends from; its own number if it is that one.
    pub(in crate::memory) tree: Pid,
    pub(in crate::memory) argv: Vec<Vec<u8>>,
    pub(in crate::memory) tag: Option<String>,
    pub(in crate::memory) cwd: Option<String>,
    /// What those who hold a handle on it share; absent for what it started itself.
    pub(in crate::memory) feed: Option<Arc<Feed>>,
    end: watch::Sender<Option<ExitStatus>>,
    task: Option<AbortHandle>,
}

impl Entry {
    pub(in crate::memory) fn new(
        tree: Pid,
        argv: Vec<Vec<u8>>,
        tag: Option<String>,
        cwd: Option<String>,
    ) -> Self {
        Self { tree, argv, tag, cwd, feed: None, end: watch::Sender::new(None), task: None }
    }
}

impl Default for ProcessTable {
    fn default() -> Self {
        Self(Mutex::new(Table { next: FIRST_PID, live: BTreeMap::new() }))
    }
}

impl ProcessTable {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::memory) fn next_pid(&self) -> Pid {
        let mut table = self.lock();
        table.next += 1;
        table.next - 1
    }

    pub(in crate::memory) fn insert(&self, pid: Pid, entry: Entry) -> Ended {
        let ended = entry.end.subscribe();
        self.lock().live.insert(pid, entry);
        ended
    }

    /// Keeps the handle of a process' task, if it still runs.
    pub(in crate::memory) fn set_task(&self, pid: Pid, task: AbortHandle) {
        if let Some(entry) = self.lock().live.get_mut(&pid) {
            entry.task = Some(task);
        } else {
            task.abort();
        }
    }

    /// Makes a process one that others can get a handle on.
    pub(in crate::memory) fn set_feed(&self, pid: Pid, feed: Arc<Feed>) {
        if let Some(entry) = self.lock().live.get_mut(&pid) {
            entry.feed = Some(feed);
        }
    }

    /// The end of a process: it is no longer listed, and whoever waits learns `status`.
    pub(in crate::memory) fn finish(&self, pid: Pid, status: ExitStatus) {
        if let Some(entry) = self.lock().live.remove(&pid) {
            entry.end.send_replace(Some(status));
        }
    }

    /// Ends one process by a signal; `false` if there is none.
    pub(in crate::memory) fn kill(&self, pid: Pid, signal: i32) -> bool {
        let Some(entry) = self.lock().live.remove(&pid) else { return false };
        end_by(entry, signal);
        true
    }

    /// Ends a process and, of one that the contract's caller started, all that descend from it.
    pub(in crate::memory) fn kill_tree(&self, tree: Pid, signal: i32) -> bool {
        let mut table = self.lock();
        if !table.live.contains_key(&tree) {
            return false;
        }
        let doomed: Vec<Pid> = table
            .live
            .iter()
            .filter(|(pid, entry)| entry.tree == tree || **pid == tree)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in doomed {
            if let Some(entry) = table.live.remove(&pid) {
                end_by(entry, signal);
            }
        }
        true
    }

    /// Ends everything.
    pub(in crate::memory) fn kill_all(&self, signal: i32) {
        for entry in std::mem::take(&mut self.lock().live).into_values() {
            end_by(entry, signal);
        }
    }

    pub(in crate::memory) fn is_alive(&self, pid: Pid) -> bool {
        self.lock().live.contains_key(&pid)
    }

    pub(in crate::memory) fn count(&self) -> usize {
        self.lock().live.len()
    }

    /// What `pick` makes of each process.
    pub(in crate::memory) fn collect<T>(&self, pick: impl Fn(Pid, &Entry) -> Option<T>) -> Vec<T> {
        self.lock().live.iter().filter_map(|(pid, entry)| pick(*pid, entry)).collect()
    }
}

fn end_by(entry: Entry, signal: i32) {
    entry.end.send_replace(Some(ExitStatus::Signal(signal)));
    if let Some(task) = entry.task {
        task.abort();
    }
}
