use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use sandbar_core::Decision;
use sandbar_egress::DecisionSink;
use tokio::sync::oneshot;

use super::super::log;
use super::super::shared::Shared;
use crate::home::DecisionLog;

/// Decisions that wait to be written. More come only while the disk stands still; they are counted, and lost.
const WAITING: usize = 4096;
/// Decisions that are written at once.
const BATCH: usize = 256;
/// How long a question whether all is written may wait.
const FLUSH: Duration = Duration::from_secs(5);

enum Entry {
    Decision(Box<Decision>),
    /// All before it is to be in the file.
    Flush(oneshot::Sender<()>),
}

/// Writes what the gateway decides, aside: a slow disk holds up no connection.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    entries: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

impl Journal {
    /// Begins to write. The thread ends with the last of those who write to it.
    pub(super) fn begin(shared: &Arc<Shared>) -> std::io::Result<Self> {
        let log = DecisionLog::open(&shared.folder)?;
        let (entries, waiting) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let (shared, counted) = (Arc::clone(shared), Arc::clone(&lost));
        std::thread::Builder::new()
            .name("sandbar-egress-log".to_owned())
            .stack_size(super::STACK)
            .spawn(move || write(log, &shared, &waiting, &counted))?;
        Ok(Self { entries, lost })
    }

    /// Waits until all that was decided so far is in the file.
    pub(super) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        if self.entries.try_send(Entry::Flush(done)).is_ok() {
            // A disk that stands still holds nobody up for long; what is not written yet is missing from the answer.
            let _ = tokio::time::timeout(FLUSH, is_done).await;
        }
    }
}

impl DecisionSink for Journal {
    fn tell(&self, decision: Decision) {
        match self.entries.try_send(Entry::Decision(Box::new(decision))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn write(mut log: DecisionLog, shared: &Shared, waiting: &Receiver<Entry>, lost: &AtomicU64) {
    let mut batch = Vec::with_capacity(BATCH);
    while let Ok(first) = waiting.recv() {
        let mut flushed = Vec::new();
        let more = std::iter::from_fn(|| waiting.try_recv().ok()).take(BATCH);
        for entry in std::iter::once(first).chain(more) {
            match entry {
                Entry::Decision(decision) => batch.push(*decision),
                Entry::Flush(done) => flushed.push(done),
            }
        }
        if let Err(cause) = log.append(&shared.folder, &batch) {
            log::say(&format_args!("{} decisions of the gateway are not kept: {cause}", batch.len()));
        }
        batch.clear();
        match lost.swap(0, Ordering::Relaxed) {
            0 => {}
            lost => log::say(&format_args!("{lost} decisions of the gateway came too fast and are not kept")),
        }
        for done in flushed {
            let _ = done.send(());
        }
    }
}
