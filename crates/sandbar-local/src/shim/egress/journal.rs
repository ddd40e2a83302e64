use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

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
/// Between two lines about what is not kept, in the shim's log.
const TELL: Duration = Duration::from_secs(60);

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
    let mut losses = Losses::default();
    while let Ok(first) = waiting.recv() {
        let mut flushed = Vec::new();
        let more = std::iter::from_fn(|| waiting.try_recv().ok()).take(BATCH);
        for entry in std::iter::once(first).chain(more) {
            match entry {
                Entry::Decision(decision) => batch.push(*decision),
                Entry::Flush(done) => flushed.push(done),
            }
        }
        losses.more += lost.swap(0, Ordering::Relaxed);
        if let Err(cause) = log.append(&shared.folder, &batch) {
            losses.more += batch.len() as u64;
            losses.cause = Some(cause);
        }
        batch.clear();
        if let Some(told) = losses.due(Instant::now()) {
            log::say(&told);
        }
        for done in flushed {
            let _ = done.send(());
        }
    }
}

/// Decisions that are not in the file. They are told now and then: what makes them is the sandbox, and the shim's log has no other bound.
#[derive(Debug, Default)]
struct Losses {
    more: u64,
    cause: Option<std::io::Error>,
    told: Option<Instant>,
}

impl Losses {
    /// What is to be said of them now.
    fn due(&mut self, now: Instant) -> Option<String> {
        let is_quiet = self.told.is_none_or(|told| now.saturating_duration_since(told) >= TELL);
        if self.more == 0 || !is_quiet {
            return None;
        }
        self.told = Some(now);
        let count = std::mem::take(&mut self.more);
        let why = match self.cause.take() {
            Some(cause) => cause.to_string(),
            None => "they came too fast".to_owned(),
        };
        Some(format!("{count} decisions of the gateway are not kept: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_at_once_and_then_together() {
        let start = Instant::now();
        let mut losses = Losses::default();
        assert_eq!(losses.due(start), None);
        losses.more = 3;
        assert_eq!(losses.due(start).unwrap(), "3 decisions of the gateway are not kept: they came too fast");
        let mut told = 0;
        for second in 1..=120 {
            losses.more += 1000;
            losses.cause = Some(std::io::Error::other("no room"));
            let text = losses.due(start + Duration::from_secs(second));
            assert!(
                text.as_ref().is_none_or(|text| text.starts_with("60000 ") && text.ends_with("no room")),
                "{text:?}"
            );
            told += usize::from(text.is_some());
        }
        assert_eq!(told, 2);
    }
}
