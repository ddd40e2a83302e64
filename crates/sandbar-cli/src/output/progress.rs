use std::future::Future;
use std::io::{self, Write};
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::time::{Instant as TokioInstant, interval_at};

use crate::output::Printer;

/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_secs(1);
/// How often the display changes.
const REFRESH: Duration = Duration::from_secs(1);

impl Printer {
    /// Does `work`; once it takes long, and standard error is a terminal, says so there until it is done.
    pub(crate) async fn progress<T>(self, what: &str, work: impl Future<Output = T>) -> T {
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
                _ = ticks.tick() => shown.show(&format!("{what} … {}s", started.elapsed().as_secs())),
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
        let _ = write!(io::stderr().lock(), "\r\x1b[K{text}");
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}
