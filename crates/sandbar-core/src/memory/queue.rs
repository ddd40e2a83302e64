use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::mpsc;

use crate::{Error, Result};

/// The end to put things into.
#[derive(Debug)]
pub(super) struct Queue<T> {
    sender: mpsc::Sender<Result<T>>,
    lost: Arc<AtomicBool>,
}

/// A queue of at most `most` things. If its reader was too slow, it ends with `lost`.
pub(super) fn queue<T: Send + 'static>(
    most: usize,
    lost: impl FnOnce() -> Error + Send + 'static,
) -> (Queue<T>, BoxStream<'static, Result<T>>) {
    let (sender, receiver) = mpsc::channel(most);
    let flag = Arc::new(AtomicBool::new(false));
    let queue = Queue { sender, lost: flag.clone() };
    let things = stream::unfold(Some((receiver, flag, lost)), |state| async move {
        let (mut receiver, flag, lost) = state?;
        if let Some(thing) = receiver.recv().await {
            return Some((thing, Some((receiver, flag, lost))));
        }
        flag.load(Ordering::Acquire).then(|| (Err(lost()), None))
    });
    (queue, things.boxed())
}

impl<T> Queue<T> {
    /// Puts a thing in if there is room; `false` means that the queue is over.
    pub(super) fn try_put(&self, thing: T) -> bool {
        match self.sender.try_send(Ok(thing)) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.lost.store(true, Ordering::Release);
                false
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }

    /// Puts a thing in, waiting for room so long; `false` means that the queue is over.
    pub(super) async fn put(&self, thing: Result<T>, patience: Duration) -> bool {
        match self.sender.send_timeout(thing, patience).await {
            Ok(()) => true,
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => {
                self.lost.store(true, Ordering::Release);
                false
            }
            Err(mpsc::error::SendTimeoutError::Closed(_)) => false,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}
