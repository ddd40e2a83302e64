use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;

use super::pool::Pool;
use super::resident::{Flight, Resident};

/// How long a connection may take from the end of an answer to its next request.
const TURN: Duration = Duration::from_secs(2);

/// Where a connection goes when its answer is over.
#[derive(Clone, Debug)]
pub(super) enum Return {
    Agent(Arc<Resident>),
    Port(Arc<Pool>),
}

impl Return {
    pub(super) fn get<T>(&self, with: impl FnOnce(&Pool) -> T) -> T {
        match self {
            Self::Agent(resident) => with(&resident.agent),
            Self::Port(pool) => with(pool),
        }
    }
}

/// The body of an answer from inside. It breaks off when the sandbox stops running, and its end gives the connection back.
pub(super) struct Answer {
    body: Incoming,
    connection: Option<(SendRequest<Body>, Return)>,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    /// How long nothing may come, and when that is over.
    longest: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    is_broken: bool,
    _flight: Flight,
    tasks: TaskTracker,
}

impl Answer {
    pub(super) fn new(
        body: Incoming,
        connection: (SendRequest<Body>, Return),
        awake: CancellationToken,
        flight: Flight,
        longest: Duration,
        tasks: TaskTracker,
    ) -> Self {
        let stopped = Box::pin(awake.cancelled_owned());
        Self {
            body,
            connection: Some(connection),
            stopped,
            longest,
            silence: None,
            is_broken: false,
            _flight: flight,
            tasks,
        }
    }

    /// The whole answer was had: the connection can have another request as soon as it has noticed that, too.
    fn give_back(&mut self) {
        let Some((mut sender, pool)) = self.connection.take() else { return };
        if sender.is_ready() {
            pool.get(|pool| pool.put(sender));
            return;
        }
        self.tasks.spawn(async move {
            if let Ok(Ok(())) = tokio::time::timeout(TURN, sender.ready()).await {
                pool.get(|pool| pool.put(sender));
            }
        });
    }

    fn broken(
        &mut self,
        kind: io::ErrorKind,
        why: &'static str,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_broken = true;
        self.connection = None;
        Poll::Ready(Some(Err(axum::Error::new(io::Error::new(kind, why)))))
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_broken {
            return Poll::Ready(None);
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.silence = None;
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(Some(Err(error))) => {
                self.is_broken = true;
                self.connection = None;
                return Poll::Ready(Some(Err(axum::Error::new(error))));
            }
            Poll::Ready(None) => {
                self.give_back();
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        if self.stopped.as_mut().poll(cx).is_ready() {
            return self.broken(io::ErrorKind::ConnectionReset, "the sandbox does not run any more");
        }
        let end = Instant::now() + self.longest;
        let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        if silence.as_mut().poll(cx).is_ready() {
            return self.broken(io::ErrorKind::TimedOut, "nothing came for too long");
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // One of known length is not asked for its end.
        if !self.is_broken && self.body.is_end_stream() {
            self.give_back();
        }
    }
}

/// The body of an answer that this server made itself for a sandbox: it breaks off in the same way.
pub(super) struct Cut {
    body: Body,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    is_broken: bool,
    _flight: Flight,
}

impl Cut {
    pub(super) fn new(body: Body, awake: CancellationToken, flight: Flight) -> Self {
        Self { body, stopped: Box::pin(awake.cancelled_owned()), is_broken: false, _flight: flight }
    }
}

impl HttpBody for Cut {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_broken {
            return Poll::Ready(None);
        }
        if self.stopped.as_mut().poll(cx).is_ready() {
            self.is_broken = true;
            let error = io::Error::new(io::ErrorKind::ConnectionReset, "the sandbox does not run any more");
            return Poll::Ready(Some(Err(axum::Error::new(error))));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
