use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use sandbar_wire::envd::{
    Code, FilesystemEvent, RpcError, WatchDirEvent, WatchDirRequest, message_frame, reason,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::Context;
use super::inotify::Inotify;
use super::watch::{Change, Watch, exhausted};
use crate::processes::Queue;
use crate::{blocking, descriptor};

/// Most watchers that are polled at the same time; each has a kernel object of which a user gets few (128).
const MAX_WATCHERS: usize = 100;
/// Most events that wait for a poll, per watcher; a poll later than that is told that events were lost.
const MAX_EVENTS: usize = 100_000;

fn overflow() -> RpcError {
    RpcError::new(Code::ResourceExhausted, "overflow: events were lost; list the folder again")
        .with_reason(reason::OVERFLOW)
}

/// A watch and when to read it. The descriptor is watched by a duplicate, so that the rest can change threads.
struct Follower {
    ready: AsyncFd<std::os::fd::OwnedFd>,
    watch: Option<Watch>,
    root: PathBuf,
    /// More may be queued than was read; the runtime tells of new events only.
    has_more: bool,
}

impl Follower {
    async fn new(context: Context, root: PathBuf, request: &WatchDirRequest) -> Result<Self, RpcError> {
        let internal = |error: std::io::Error| RpcError::new(Code::Internal, error.to_string());
        let (path, request) = (root.clone(), request.clone());
        let watch = blocking::run(move || Watch::new(context, path, &request)).await??;
        let duplicate = duplicate(&watch.inotify).map_err(internal)?;
        let ready = descriptor::watch(duplicate).map_err(internal)?;
        Ok(Self { ready, watch: Some(watch), root, has_more: true })
    }

    /// The next changes; none where what happened is of no interest.
    async fn next(&mut self) -> Result<Vec<Change>, RpcError> {
        let internal = |error: std::io::Error| RpcError::new(Code::Internal, error.to_string());
        if !self.has_more {
            self.ready.readable().await.map_err(internal)?.clear_ready();
        }
        let Some(mut watch) = self.watch.take() else {
            return Err(RpcError::new(Code::Internal, "the watch ended"));
        };
        let (watch, batch) = blocking::run(move || {
            let batch = watch.read();
            (watch, batch)
        })
        .await?;
        self.watch = Some(watch);
        let batch = batch.map_err(|error| exhausted(&self.root, &error))?;
        self.has_more = !batch.is_last;
        Ok(batch.changes)
    }
}

fn duplicate(inotify: &Inotify) -> std::io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::AsFd;
    inotify.as_fd().try_clone_to_owned()
}

/// Watches a folder for one stream. The queue has `start` in it once the watch is armed; aborting the task ends it.
pub(crate) async fn watch_stream(
    context: Context,
    root: PathBuf,
    request: &WatchDirRequest,
) -> Result<(Rc<Queue>, JoinHandle<()>), RpcError> {
    let mut follower = Follower::new(context, root, request).await?;
    let taken = Rc::new(Notify::new());
    let queue = Queue::new(taken.clone());
    queue.push(message_frame(&WatchDirEvent::Start));
    let target = queue.clone();
    let task = tokio::task::spawn_local(async move {
        while target.is_open() {
            // A reader that doesn't read leaves events to the kernel, whose queue runs over and says so.
            let freed = taken.notified();
            if !target.has_room() {
                freed.await;
                continue;
            }
            match follower.next().await {
                Ok(changes) => {
                    for change in changes {
                        match change {
                            Change::Event(event) => {
                                target.push(message_frame(&WatchDirEvent::Filesystem(*event)));
                            }
                            Change::Overflow => target.finish(Some(&overflow())),
                            Change::Gone => target.finish(None),
                        }
                    }
                }
                Err(error) => target.finish(Some(&error)),
            }
        }
    });
    Ok((queue, task))
}

/// Watches whose events are asked for.
#[derive(Default)]
pub(crate) struct Watchers {
    next: Cell<u64>,
    known: RefCell<BTreeMap<String, Watcher>>,
}

struct Watcher {
    events: Rc<RefCell<Pending>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Pending {
    events: Vec<FilesystemEvent>,
    error: Option<RpcError>,
}

impl Watchers {
    pub(crate) async fn create(
        &self,
        context: Context,
        root: PathBuf,
        request: &WatchDirRequest,
    ) -> Result<String, RpcError> {
        if self.known.borrow().len() >= MAX_WATCHERS {
            let text = format!("there are {MAX_WATCHERS} watchers already; remove some");
            return Err(RpcError::new(Code::ResourceExhausted, text));
        }
        let mut follower = Follower::new(context, root, request).await?;
        let events = Rc::new(RefCell::new(Pending::default()));
        let pending = events.clone();
        let task = tokio::task::spawn_local(async move {
            loop {
                let result = follower.next().await;
                let mut pending = pending.borrow_mut();
                match result {
                    Ok(changes) => changes.into_iter().for_each(|change| pending.add(change)),
                    Err(error) => {
                        pending.error = Some(error);
                        return;
                    }
                }
            }
        });
        self.next.set(self.next.get() + 1);
        let id = format!("w{}", self.next.get());
        self.known.borrow_mut().insert(id.clone(), Watcher { events, task });
        Ok(id)
    }

    /// What happened since the last call. An error says that some of it was lost; the next call goes on after that.
    pub(crate) fn take(&self, id: &str) -> Result<Vec<FilesystemEvent>, RpcError> {
        let known = self.known.borrow();
        let watcher = known.get(id).ok_or_else(|| unknown(id))?;
        let pending = std::mem::take(&mut *watcher.events.borrow_mut());
        match pending.error {
            Some(error) => Err(error),
            None => Ok(pending.events),
        }
    }

    pub(crate) fn remove(&self, id: &str) -> Result<(), RpcError> {
        let watcher = self.known.borrow_mut().remove(id).ok_or_else(|| unknown(id))?;
        watcher.task.abort();
        Ok(())
    }
}

fn unknown(id: &str) -> RpcError {
    RpcError::new(Code::NotFound, format!("watcher with id {id} not found"))
}

impl Pending {
    fn add(&mut self, change: Change) {
        match change {
            Change::Event(event) if self.events.len() < MAX_EVENTS => self.events.push(*event),
            Change::Event(_) | Change::Overflow => {
                self.events.clear();
                self.error = Some(overflow());
            }
            // Whoever asks has been told by the event before.
            Change::Gone => {}
        }
    }
}
