use std::convert::Infallible;
use std::future::Future;
use std::io::{self, IsTerminal};
use std::time::Duration;

use rustix::process::{getpid, kill_process};
use rustix::termios::tcgetwinsize;
use sandbar::{Error, ErrorKind, ProcessControl, PtySize};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use super::raw::Raw;
use crate::failure::Result;

/// Where the terminal does not know its own size.
const USUAL: PtySize = PtySize { cols: 80, rows: 24 };
/// The numbers of `SIGTSTP` and `SIGCONT` on the architectures that this runs on (signal(7)).
const SIGTSTP: i32 = 20;
const SIGCONT: i32 = 18;

/// How long a program may take to see one size before it gets the next. One that is slower draws again when something is typed.
const NOTICE: Duration = Duration::from_millis(100);

/// Whether there is somebody at a keyboard on our standard input.
pub(crate) fn is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// The size of the caller's terminal: where output goes, else where input comes from.
pub(crate) fn size() -> PtySize {
    let of = |fd| {
        let size = tcgetwinsize(fd).ok()?;
        (size.ws_col > 0 && size.ws_row > 0).then_some(PtySize { cols: size.ws_col, rows: size.ws_row })
    };
    of(rustix::stdio::stdout()).or_else(|| of(rustix::stdio::stdin())).unwrap_or(USUAL)
}

/// What the command's terminal has been told of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The size that it had a moment ago.
    Size,
    /// Nothing that counts here: it shows what it shows to somebody else, and has to draw it again.
    Nothing,
}

/// The caller's terminal in a command's hands, until this is dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    raw: Raw,
    told: Told,
    resized: Signal,
    stopped: Signal,
    continued: Signal,
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn take(told: Told) -> Result<Self> {
        let take = || -> io::Result<Self> {
            let resized = signal(SignalKind::window_change())?;
            let stopped = signal(SignalKind::from_raw(SIGTSTP))?;
            let continued = signal(SignalKind::from_raw(SIGCONT))?;
            Ok(Self { raw: Raw::enter()?, told, resized, stopped, continued })
        };
        take().map_err(|error| {
            Error::new(ErrorKind::Unexpected, "take the terminal", error.to_string())
                .with_source(error)
                .into()
        })
    }

    /// Passes its size on now and whenever it changes, for as long as this is polled, and comes and goes with job control.
    pub(crate) async fn follow(&mut self, control: &dyn ProcessControl) -> Infallible {
        // A command that is gone needs no size, and one that does not answer has worse troubles.
        let tell = |told| async move {
            let size = size();
            if told == Told::Nothing {
                // Only a change makes programs draw.
                let other = PtySize { rows: if size.rows > 1 { size.rows - 1 } else { 2 }, ..size };
                let _ = control.resize(other).await;
                sleep(NOTICE).await;
            }
            let _ = control.resize(size).await;
        };
        let mut telling = Some(Box::pin(tell(self.told)));
        let mut is_old = false;
        loop {
            tokio::select! {
                _ = self.resized.recv() => is_old = true,
                _ = self.stopped.recv() => {
                    self.raw.suspend();
                    is_old = true;
                }
                _ = self.continued.recv() => {
                    // Whoever had the terminal meanwhile may have left it in any state. One that is gone is found out by reading.
                    let _ = self.raw.again();
                    is_old = true;
                }
                () = maybe(&mut telling) => telling = None,
            }
            if is_old && telling.is_none() {
                is_old = false;
                telling = Some(Box::pin(tell(Told::Size)));
            }
        }
    }

    /// Stops this process until somebody continues it.
    pub(crate) fn suspend() {
        // As if from outside, so that it is done in one place.
        let _ = kill_process(getpid(), rustix::process::Signal::TSTP);
    }
}

async fn maybe(work: &mut Option<impl Future<Output = ()> + Unpin>) {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}
