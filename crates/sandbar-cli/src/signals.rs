use std::io;

use sandbar::{Error, ErrorKind, Signal};
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Result;

/// The signals by which somebody asks this process to end. `None` is one that was ignored from the start, which is what `nohup` and shells
/// without job control ask for: it stays ignored.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Option<unix::Signal>,
    terminate: Option<unix::Signal>,
    hang_up: Option<unix::Signal>,
}

impl Signals {
    /// Takes over the handling of these signals. From here on they end nothing by themselves.
    pub(crate) fn catch() -> Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        // Unknown counts as not ignored: then a signal ends us and leaves nothing.
        let unless_ignored = |kind: SignalKind| {
            if is_ignored(&status, kind) { Ok(None) } else { unix::signal(kind).map(Some) }
        };
        let catch = || -> io::Result<Self> {
            Ok(Self {
                interrupt: unless_ignored(SignalKind::interrupt())?,
                terminate: unless_ignored(SignalKind::terminate())?,
                hang_up: unless_ignored(SignalKind::hangup())?,
            })
        };
        catch().map_err(not_caught)
    }

    /// The next one. Nothing is lost if this is dropped and called again.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            () = received(&mut self.interrupt) => Signal::INT,
            () = received(&mut self.terminate) => Signal::TERM,
            () = received(&mut self.hang_up) => Signal::HUP,
        }
    }
}

async fn received(signal: &mut Option<unix::Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
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
