use sandbar::{ProcessExit, Signal};

use crate::exit::ExitStatus;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, or by a signal from wherever.
    Exited(ProcessExit),
    /// It ran into its timeout and was ended.
    TimedOut,
    /// We were asked to end by this signal, and ended it.
    Interrupted(Signal),
    /// Somebody wants no more of it, by our own key or by this signal: it runs on.
    Detached(Signal),
}

impl End {
    pub(crate) fn status(self) -> ExitStatus {
        match self {
            Self::Exited(exit) => ExitStatus::Command(exit.status),
            Self::TimedOut => ExitStatus::TimedOut,
            Self::Interrupted(signal) | Self::Detached(signal) => ExitStatus::Interrupted(signal.0),
        }
    }
}
