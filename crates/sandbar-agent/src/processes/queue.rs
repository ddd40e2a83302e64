use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use sandbar_wire::envd::{Code, RpcError, end_frame};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

/// Output that a reader may leave unread before it counts as full, in bytes: some sixteen chunks of output.
const CAPACITY_BYTES: usize = 1 << 20;

/// Frames on their way to one reader of a stream.
pub(crate) struct Queue {
    inner: RefCell<Inner>,
    /// Told whenever a reader took something or left.
    room: Rc<Notify>,
}

struct Inner {
    frames: VecDeque<Bytes>,
    bytes: usize,
    finished: bool,
    left: bool,
    reader: Option<Waker>,
}

impl Queue {
    pub(crate) fn new(room: Rc<Notify>) -> Rc<Self> {
        let inner = Inner { frames: VecDeque::new(), bytes: 0, finished: false, left: false, reader: None };
        Rc::new(Self { inner: RefCell::new(inner), room })
    }

    /// Adds a frame, whatever room there is; after the end nothing is added.
    pub(crate) fn push(&self, frame: Bytes) {
        let mut inner = self.inner.borrow_mut();
        if inner.finished || inner.left {
            return;
        }
        inner.bytes += frame.len();
        inner.frames.push_back(frame);
        inner.wake();
    }

    /// Ends the stream after what is queued.
    pub(crate) fn finish(&self, error: Option<&RpcError>) {
        self.push(end_frame(error));
        self.inner.borrow_mut().finished = true;
        self.room.notify_waiters();
    }

    /// Ends the stream now and drops what is queued, for a reader that doesn't keep up.
    pub(crate) fn abort(&self, error: &RpcError) {
        {
            let mut inner = self.inner.borrow_mut();
            inner.frames.clear();
            inner.bytes = 0;
        }
        self.finish(Some(error));
    }

    /// Whether the reader is still interested and the stream goes on.
    pub(crate) fn is_open(&self) -> bool {
        let inner = self.inner.borrow();
        !inner.finished && !inner.left
    }

    pub(crate) fn has_room(&self) -> bool {
        self.inner.borrow().bytes < CAPACITY_BYTES
    }

    pub(crate) fn is_half_empty(&self) -> bool {
        self.inner.borrow().bytes <= CAPACITY_BYTES / 2
    }
}

impl Inner {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// What a stream does when nothing happens.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// A keepalive after this silence.
    pub(crate) keepalive: Duration,
    /// The frame for it.
    pub(crate) keepalive_frame: Bytes,
    /// `deadline_exceeded` at this moment.
    pub(crate) deadline: Option<Instant>,
}

/// The reading end of a queue, as the body of an answer. Dropping it tells the writer that the reader left.
pub(crate) struct FrameBody {
    queue: Rc<Queue>,
    pace: Pace,
    silence: Pin<Box<Sleep>>,
    deadline: Option<Pin<Box<Sleep>>>,
    on_drop: Option<Box<dyn FnOnce()>>,
}

impl FrameBody {
    pub(crate) fn new(queue: Rc<Queue>, pace: Pace) -> Self {
        let silence = Box::pin(sleep_until(Instant::now() + pace.keepalive));
        let deadline = pace.deadline.map(|deadline| Box::pin(sleep_until(deadline)));
        Self { queue, pace, silence, deadline, on_drop: None }
    }

    pub(crate) fn on_drop(mut self, action: impl FnOnce() + 'static) -> Self {
        self.on_drop = Some(Box::new(action));
        self
    }
}

impl HttpBody for FrameBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let mut inner = this.queue.inner.borrow_mut();
        if let Some(frame) = inner.frames.pop_front() {
            inner.bytes -= frame.len();
            drop(inner);
            this.queue.room.notify_waiters();
            this.silence.as_mut().reset(Instant::now() + this.pace.keepalive);
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        if inner.finished {
            return Poll::Ready(None);
        }
        inner.reader = Some(cx.waker().clone());
        drop(inner);
        if let Some(deadline) = &mut this.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            this.deadline = None;
            this.queue.finish(Some(&RpcError::new(Code::DeadlineExceeded, "the stream's time limit passed")));
            return Pin::new(this).poll_frame(cx);
        }
        if this.silence.as_mut().poll(cx).is_ready() {
            this.silence.as_mut().reset(Instant::now() + this.pace.keepalive);
            return Poll::Ready(Some(Ok(Frame::data(this.pace.keepalive_frame.clone()))));
        }
        Poll::Pending
    }
}

impl Drop for FrameBody {
    fn drop(&mut self) {
        self.queue.inner.borrow_mut().left = true;
        self.queue.room.notify_waiters();
        if let Some(action) = self.on_drop.take() {
            action();
        }
    }
}
