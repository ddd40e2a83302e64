use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// How the terminal was before it was made raw. Beyond any one owner, because a panic on whichever thread has to give the terminal back.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal on standard input without any processing of its own; as it was before once this is dropped.
#[derive(Debug)]
pub(super) struct Raw {
    raw: Termios,
}

impl Raw {
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(rustix::stdio::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        // Known before anything changes.
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let entered = Self { raw };
        entered.again()?;
        Ok(entered)
    }

    /// Makes it raw again, where somebody else had it meanwhile.
    pub(super) fn again(&self) -> io::Result<()> {
        Ok(tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.raw)?)
    }

    /// Gives the terminal back, stops this process as its own suspend key would, and takes it again once somebody continues it.
    pub(super) fn suspend(&self) {
        give_back();
        // It stops in this call. Where it can't be stopped it goes on as if it had been continued at once.
        let _ = kill_process(getpid(), Signal::STOP);
        let _ = self.again();
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back for good, if it was taken. For whoever ends this process without unwinding.
pub(crate) fn restore() {
    give_back();
    if let Ok(mut before) = BEFORE.try_lock() {
        *before = None;
    }
}

fn give_back() {
    // Whoever panics while the lock is held is in here already.
    let Ok(before) = BEFORE.try_lock() else { return };
    if let Some(before) = before.as_ref() {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
    }
}
