use std::future::Future;
use std::io::{self, Write};
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::time::{Instant as TokioInstant, interval_at};

use crate::output::stats::short_size;
use crate::output::{Printer, escape};
use crate::transfer::Meter;

/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_secs(1);
/// How often the display changes.
const REFRESH: Duration = Duration::from_secs(1);

impl Printer {
    /// Does `work`; once it takes long, and standard error is a terminal, says so there until it is done.
    pub(crate) async fn progress<T>(self, what: &str, work: impl Future<Output = T>) -> T {
        self.progress_with(|| what.to_owned(), work).await
    }

    /// As [`Printer::progress`], with how far a copy has got.
    pub(crate) async fn progress_of<T>(self, what: &str, meter: &Meter, work: impl Future<Output = T>) -> T {
        let text = || {
            let (files, bytes) = (meter.files_so_far(), short_size(meter.bytes_so_far()));
            if files > 1 { format!("{what}: {files} files, {bytes}") } else { format!("{what}: {bytes}") }
        };
        self.progress_with(text, work).await
    }

    async fn progress_with<T>(self, what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
        if self.json() || !self.terminal.is_some_and(|terminal| terminal.moves) {
            return work.await;
        }
        let started = Instant::now();
        let mut work = pin!(work);
        let mut ticks = interval_at(TokioInstant::now() + QUIET, REFRESH);
        let mut shown = Line { shown: false };
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = ticks.tick() => shown.show(&format!("{} … {}s", what(), started.elapsed().as_secs())),
            }
        }
    }
}

/// A line on the terminal that is gone when this is.
struct Line {
    shown: bool,
}

impl Line {
    fn show(&mut self, text: &str) {
        self.shown = true;
        // A display that can't be written is no reason to stop the work.
        let _ = write!(io::stderr().lock(), "\r\x1b[K{}", escape(text));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}
