use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbar_core::Result;
use serde_json::json;

use super::config::unwritable;
use super::{AuditConfig, AuditMode, Exclusive, file, is_in_place, rotate};
use crate::Event;
use crate::event::to_line;

/// How long an event may wait for other writers. Each takes microseconds, so this is one that was stopped, or a disk that stands still.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the file may make way for another while a writer waits for it.
const REOPENS: usize = 64;

/// The audit record, to write to. Several of it, in as many processes, may write to one file.
#[derive(Clone)]
pub struct AuditLog(Arc<Inner>);

struct Inner {
    config: AuditConfig,
    file: Mutex<Option<File>>,
    /// Events that could not be written.
    lost: AtomicU64,
    /// As many of them as the record does not tell of yet.
    untold: AtomicU64,
}

impl AuditLog {
    /// Opens the file, or makes it with mode 0600. In mode [`AuditMode::Required`] one that can't be written is an error.
    pub fn open(config: AuditConfig) -> Result<Self> {
        config.check()?;
        let opened = file::open(&config.path, config.folder());
        let file = match (opened, config.mode) {
            (Ok(file), _) => Some(file),
            (Err(_), AuditMode::BestEffort) => None,
            (Err(cause), AuditMode::Required) => return Err(unwritable(&config.path, cause)),
        };
        let inner =
            Inner { config, file: Mutex::new(file), lost: AtomicU64::new(0), untold: AtomicU64::new(0) };
        Ok(Self(Arc::new(inner)))
    }

    /// How it was opened.
    pub fn config(&self) -> &AuditConfig {
        &self.0.config
    }

    /// How many events could not be written so far.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Writes an event; blocks for as long as others write, at most some seconds. It stands in the file whole, or there is an error and nothing of it.
    pub fn append(&self, event: &Event) -> Result<()> {
        self.append_until(event, Instant::now() + PATIENCE)
    }

    /// As [`AuditLog::append`], without blocking the thread for longer than a write takes.
    pub async fn record(&self, event: Event) -> Result<()> {
        // Hardly ever does anybody else write at this very moment, and a thread costs more than the write.
        if let Some(written) = self.try_append(&event) {
            return written;
        }
        let log = self.clone();
        match tokio::task::spawn_blocking(move || log.append(&event)).await {
            Ok(written) => written,
            Err(cause) => {
                self.lose();
                Err(unwritable(&self.0.config.path, io::Error::other(cause)))
            }
        }
    }

    /// Writes at once; `None` where others are at it.
    fn try_append(&self, event: &Event) -> Option<Result<()>> {
        let mut slot = self.0.file.try_lock().ok()?;
        match self.write(&mut slot, event, Instant::now()) {
            Err(cause) if cause.kind() == io::ErrorKind::TimedOut => None,
            written => Some(self.told(written)),
        }
    }

    fn append_until(&self, event: &Event, until: Instant) -> Result<()> {
        let mut slot = hold(&self.0.file);
        let written = self.write(&mut slot, event, until);
        self.told(written)
    }

    fn told(&self, written: io::Result<()>) -> Result<()> {
        written.map_err(|cause| {
            self.lose();
            unwritable(&self.0.config.path, cause)
        })
    }

    fn lose(&self) {
        self.0.lost.fetch_add(1, Ordering::Relaxed);
        self.0.untold.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the event, and how many were lost before it, in one piece.
    fn write(&self, slot: &mut Option<File>, event: &Event, until: Instant) -> io::Result<()> {
        let untold = self.0.untold.load(Ordering::Relaxed);
        let mut lines = Vec::new();
        if untold > 0 {
            let lost = Event::note("lost", event.backend.clone(), event.actor.clone());
            lines = to_line(&lost.with_detail("events", json!(untold)))?;
        }
        lines.extend(to_line(event)?);
        self.write_lines(slot, &lines, until)?;
        self.0.untold.fetch_sub(untold, Ordering::Relaxed);
        Ok(())
    }

    fn write_lines(&self, slot: &mut Option<File>, lines: &[u8], until: Instant) -> io::Result<()> {
        let config = &self.0.config;
        for _ in 0..REOPENS {
            let file = match slot.take() {
                Some(file) => file,
                None => file::open(&config.path, config.folder())?,
            };
            let file = slot.insert(file);
            let lock = Exclusive::take(file, until)?;
            if !is_in_place(file, &config.path)? {
                drop(lock);
                *slot = None;
                continue;
            }
            let length = file.metadata()?.len();
            let added = u64::try_from(lines.len()).unwrap_or(u64::MAX);
            if length > 0 && length.saturating_add(added) > config.max_bytes {
                rotate::rotate(&config.path, config.keep)?;
                drop(lock);
                *slot = None;
                continue;
            }
            return write_whole(file, length, lines);
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "it makes way for another all the time"))
    }
}

/// Writes all or nothing behind `length` bytes. The caller holds the lock.
fn write_whole(mut file: &File, length: u64, lines: &[u8]) -> io::Result<()> {
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    let written = if last == *b"\n" {
        file.write_all(lines)
    } else {
        // A writer that was killed in its middle left a torn line: it ends here, so that it does not spoil this one.
        file.write_all(&[b"\n", lines].concat())
    };
    written.inspect_err(|_| {
        // Where even this fails, the next writer ends the torn line.
        let _ = file.set_len(length);
    })
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("config", &self.0.config).field("lost", &self.lost()).finish()
    }
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
