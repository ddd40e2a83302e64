use std::io;

use sandbar::{Error, ErrorKind, Signal};
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Result;

/// The signals by which somebody asks this process to end.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    /// `None` where it was ignored from the start, which is what `nohup` asks for.
    hang_up: Option<unix::Signal>,
}

impl Signals {
    /// Takes over the handling of these signals. From here on they end nothing by themselves.
    pub(crate) fn catch() -> Result<Self> {
        let catch = || -> io::Result<Self> {
            Ok(Self {
                interrupt: unix::signal(SignalKind::interrupt())?,
                terminate: unix::signal(SignalKind::terminate())?,
                hang_up: if hang_up_is_ignored() { None } else { Some(unix::signal(SignalKind::hangup())?) },
            })
        };
        catch().map_err(|error| {
            Error::new(ErrorKind::Unexpected, "catch signals", error.to_string()).with_source(error).into()
        })
    }

    /// The next one. Nothing is lost if this is dropped and called again.
    pub(crate) async fn next(&mut self) -> Signal {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = hang_up => Signal::HUP,
        }
    }
}

/// Whether we were started with `SIGHUP` ignored. Unknown counts as no: then a hang-up ends us and leaves nothing.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_ignored(&status, Signal::HUP)
}

fn is_ignored(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.0 - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(is_ignored(status, Signal::HUP));
        assert!(!is_ignored(status, Signal::INT));
        assert!(!is_ignored("", Signal::HUP));
        assert!(!is_ignored("SigIgn:\tnonsense\n", Signal::HUP));
    }
}
