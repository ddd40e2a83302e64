use std::future::poll_fn;
use std::io;
use std::task::Poll;

use sandbar::{Error, ErrorKind, Signal};
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Result;

/// The signals by which somebody asks this process to end. One that was ignored from the start, which is what `nohup` and shells
/// without job control ask for, is not among them: it stays ignored.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

/// What asks politely.
const POLITE: &[Signal] = &[Signal::INT, Signal::TERM, Signal::HUP];
/// What else ends a process that does nothing about it and is sent by hand: quit, user-defined 1 and 2, alarm clock, processor time
/// (signal(7)). While a terminal is not as it was, they must not end this process by themselves.
const UNCOUTH: &[Signal] = &[Signal::QUIT, Signal(10), Signal(12), Signal(14), Signal(24)];

impl Signals {
    /// Takes over the handling of these signals. From here on they end nothing by themselves.
    pub(crate) fn catch() -> Result<Self> {
        let mut signals = Self(Vec::new());
        signals.add(POLITE)?;
        Ok(signals)
    }

    /// Takes over all others too by which somebody is likely to end this process.
    pub(crate) fn catch_more(&mut self) -> Result<()> {
        self.add(UNCOUTH)
    }

    fn add(&mut self, signals: &[Signal]) -> Result<()> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for signal in signals {
            let kind = SignalKind::from_raw(signal.0);
            // Unknown counts as not ignored: then a signal ends us and leaves nothing.
            if !is_ignored(&status, kind) {
                self.0.push((*signal, unix::signal(kind).map_err(not_caught)?));
            }
        }
        Ok(())
    }

    /// The next one. Nothing is lost if this is dropped and called again.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let came = self.0.iter_mut().find_map(|(signal, stream)| {
                matches!(stream.poll_recv(context), Poll::Ready(Some(()))).then_some(*signal)
            });
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The number of `SIGXFSZ` on every architecture that this runs on (signal(7)).
const SIGXFSZ: i32 = 25;

/// Makes a write beyond the limit on file sizes an error instead of this process' end, as long as the event loop lives.
pub(crate) fn report_file_size_limit() -> Result<()> {
    // Caught is as good as ignored, and needs no handler of our own. Nobody asks whether it came.
    unix::signal(SignalKind::from_raw(SIGXFSZ)).map(drop).map_err(not_caught)
}

fn not_caught(error: io::Error) -> crate::failure::Failure {
    Error::new(ErrorKind::Unexpected, "catch signals", error.to_string()).with_source(error).into()
}

fn is_ignored(status: &str, signal: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw_value() - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(is_ignored(status, SignalKind::hangup()));
        assert!(!is_ignored(status, SignalKind::interrupt()));
        assert!(is_ignored("SigIgn:\t0000000000000002\n", SignalKind::interrupt()));
        assert!(!is_ignored("", SignalKind::hangup()));
        assert!(!is_ignored("SigIgn:\tnonsense\n", SignalKind::hangup()));
    }
}
