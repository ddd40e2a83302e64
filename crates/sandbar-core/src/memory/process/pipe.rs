use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::Broken;

/// Bytes a pipe holds before its writer waits: the default of Linux' pipes.
const CAPACITY: usize = 65_536;

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    writers: usize,
    readers: usize,
    /// What is written is taken and dropped.
    discard: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

impl Shared {
    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A new pipe with one writer and one reader.
pub(in crate::memory) fn pipe() -> (PipeWriter, PipeReader) {
    let shared = Arc::new(Shared::default());
    shared.with(|state| {
        state.writers = 1;
        state.readers = 1;
    });
    (PipeWriter(shared.clone()), PipeReader(shared))
}

/// The end to write to. The pipe ends when the last one is dropped.
#[derive(Debug)]
pub(in crate::memory) struct PipeWriter(Arc<Shared>);

impl PipeWriter {
    /// Writes all of `bytes`, waiting for room.
    pub(in crate::memory) async fn write(&self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let taken = self.0.with(|state| {
                if state.discard {
                    return Ok(bytes.len());
                }
                if state.readers == 0 {
                    return Err(Broken);
                }
                let room = CAPACITY.saturating_sub(state.bytes.len()).min(bytes.len());
                state.bytes.extend(&bytes[..room]);
                Ok(room)
            })?;
            if taken == 0 {
                changed.await;
            } else {
                bytes = &bytes[taken..];
                self.0.changed.notify_waiters();
            }
        }
        Ok(())
    }
}

impl Clone for PipeWriter {
    fn clone(&self) -> Self {
        self.0.with(|state| state.writers += 1);
        Self(self.0.clone())
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.0.with(|state| state.writers -= 1);
        self.0.changed.notify_waiters();
    }
}

/// The end to read from. Clones share what there is.
#[derive(Debug)]
pub(in crate::memory) struct PipeReader(Arc<Shared>);

impl PipeReader {
    /// Up to `most` bytes, waiting for the first; empty at the end.
    pub(in crate::memory) async fn read(&self, most: usize) -> Bytes {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (bytes, ended) = self.0.with(|state| (take(state, most), state.writers == 0));
            if !bytes.is_empty() || ended {
                self.0.changed.notify_waiters();
                return bytes;
            }
            changed.await;
        }
    }

    /// Up to `most` bytes of what is there now.
    pub(in crate::memory) fn read_now(&self, most: usize) -> Bytes {
        let bytes = self.0.with(|state| take(state, most));
        self.0.changed.notify_waiters();
        bytes
    }

    /// From now on, what is written is dropped and its writers never wait.
    pub(in crate::memory) fn discard(&self) {
        self.0.with(|state| {
            state.discard = true;
            state.bytes.clear();
        });
        self.0.changed.notify_waiters();
    }
}

fn take(state: &mut State, most: usize) -> Bytes {
    let count = state.bytes.len().min(most);
    state.bytes.drain(..count).collect::<Vec<u8>>().into()
}

impl Clone for PipeReader {
    fn clone(&self) -> Self {
        self.0.with(|state| state.readers += 1);
        Self(self.0.clone())
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.0.with(|state| state.readers -= 1);
        self.0.changed.notify_waiters();
    }
}
