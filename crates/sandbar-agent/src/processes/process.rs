use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sandbar_engine::process::{Reach, Tree, foreground_group};
use sandbar_wire::envd::{
    Code, EndEvent, ProcessConfig, ProcessEvent, ProcessInfo, RowInput, RpcError, Signal, StartedRow,
    message_frame, reason,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout_at};

use super::queue::Queue;
/// How long a reader that is full may take to catch up by half its queue while others wait for it.
const LAG_GRACE: Duration = Duration::from_millis(250);

/// A command that runs, or one whose end is being delivered.
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) tag: Option<String>,
    pub(crate) config: ProcessConfig,
    pub(crate) tree: Arc<Tree>,
    /// Absent once closed. The lock keeps concurrent inputs whole and in order.
    pub(crate) stdin: Mutex<Option<AsyncFd<OwnedFd>>>,
    pub(crate) pty: Option<Rc<AsyncFd<OwnedFd>>>,
    readers: RefCell<Vec<Rc<Queue>>>,
    pub(crate) room: Rc<Notify>,
    exited_at: Cell<Option<Instant>>,
    pub(crate) exit_changed: Notify,
    /// Sent SIGKILL, or past its deadline: output of descendants isn't waited for.
    pub(crate) hurried: Cell<bool>,
}

impl Process {
    pub(super) fn new(
        info: ProcessInfo,
        tree: Arc<Tree>,
        stdin: Option<AsyncFd<OwnedFd>>,
        pty: Option<Rc<AsyncFd<OwnedFd>>>,
    ) -> Self {
        Self {
            pid: info.pid,
            tag: info.tag,
            config: info.config,
            tree,
            stdin: Mutex::new(stdin),
            pty,
            readers: RefCell::default(),
            room: Rc::default(),
            exited_at: Cell::new(None),
            exit_changed: Notify::new(),
            hurried: Cell::new(false),
        }
    }

    pub(crate) fn info(&self) -> ProcessInfo {
        ProcessInfo { config: self.config.clone(), pid: self.pid, tag: self.tag.clone() }
    }

    pub(super) fn started_row(&self) -> StartedRow {
        let input = match (&self.pty, self.stdin.try_lock()) {
            (Some(_), _) => RowInput::Terminal,
            (None, Ok(stdin)) if stdin.is_none() => RowInput::None,
            // Somebody is writing to it, or could.
            (None, _) => RowInput::Open,
        };
        StartedRow { tag: self.tag.clone(), cwd: self.config.cwd.clone(), input }
    }

    /// A new reader, which first gets `start`.
    pub(crate) fn subscribe(&self) -> Rc<Queue> {
        let queue = Queue::new(self.room.clone());
        queue.push(message_frame(&ProcessEvent::Start { pid: self.pid }));
        self.readers.borrow_mut().push(queue.clone());
        self.room.notify_waiters();
        queue
    }

    /// When the started process ended; its descendants may live on.
    pub(super) fn exited_at(&self) -> Option<Instant> {
        self.exited_at.get()
    }

    pub(super) fn set_exited(&self) {
        self.exited_at.set(Some(Instant::now()));
        self.exit_changed.notify_waiters();
    }

    /// Gives a frame of output to every reader.
    ///
    /// The fastest reader sets the pace, and the command waits for it as long as its connection is open. Whoever can't
    /// keep up with it is dropped. Without any reader, output is discarded.
    pub(super) async fn publish(&self, frame: &Bytes) {
        loop {
            let room = self.room.notified();
            match self.offer(frame) {
                Offer::Taken => return,
                Offer::Full { full, others } if others > 0 => self.catch_up(&full).await,
                Offer::Full { .. } => room.await,
            }
        }
    }

    /// Gives a frame to all readers, where all have room for it.
    fn offer(&self, frame: &Bytes) -> Offer {
        let mut readers = self.readers.borrow_mut();
        readers.retain(|reader| reader.is_open());
        let full: Vec<_> = readers.iter().filter(|reader| !reader.has_room()).cloned().collect();
        if full.is_empty() {
            readers.iter().for_each(|reader| reader.push(frame.clone()));
            return Offer::Taken;
        }
        Offer::Full { others: readers.len() - full.len(), full }
    }

    /// Waits until those readers have caught up, and drops the ones that don't in time.
    async fn catch_up(&self, full: &[Rc<Queue>]) {
        let limit = Instant::now() + LAG_GRACE;
        loop {
            let room = self.room.notified();
            if full.iter().all(|reader| !reader.is_open() || reader.is_half_empty()) {
                return;
            }
            if timeout_at(limit, room).await.is_err() {
                for reader in full.iter().filter(|reader| reader.is_open() && !reader.is_half_empty()) {
                    let error = RpcError::new(Code::ResourceExhausted, "reader is slower than the others");
                    reader.abort(&error.with_reason(reason::SLOW_READER));
                }
                return;
            }
        }
    }

    /// Sends the last event to every reader.
    pub(super) fn deliver_end(&self, end: &EndEvent) {
        let frame = message_frame(&ProcessEvent::End(end.clone()));
        for reader in self.readers.borrow_mut().drain(..) {
            reader.push(frame.clone());
            reader.finish(None);
        }
    }

    /// SIGTERM and SIGKILL go to the whole tree; others to what an interrupt key would reach.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), RpcError> {
        if !signal.is_standard() {
            return Err(RpcError::new(Code::Unimplemented, format!("signal {signal} is not supported")));
        }
        if signal == Signal::KILL {
            self.hurried.set(true);
            self.exit_changed.notify_waiters();
        }
        let number = signal.number();
        let failed = |error: &dyn std::fmt::Display| {
            RpcError::new(Code::Internal, format!("signal process {}: {error}", self.pid))
        };
        if signal != Signal::KILL
            && signal != Signal::TERM
            && let Some(pty) = &self.pty
            && let Ok(group) = foreground_group(pty.get_ref())
            && let Some(group) = rustix::process::Pid::from_raw(group)
            && let Some(signal) = rustix::process::Signal::from_named_raw(number)
        {
            return rustix::process::kill_process_group(group, signal).map_err(|error| failed(&error));
        }
        let reach =
            if matches!(signal, Signal::KILL | Signal::TERM) { Reach::Everything } else { Reach::Session };
        // Here and now: where no process can be made, no thread can be either.
        self.tree.signal(number, reach).map(drop).map_err(|error| failed(&error))
    }
}

enum Offer {
    Taken,
    /// Some have no room; that many others do.
    Full {
        full: Vec<Rc<Queue>>,
        others: usize,
    },
}
