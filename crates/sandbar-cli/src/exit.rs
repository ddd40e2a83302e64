use std::process::ExitCode;

/// How an invocation ends: the one table of exit codes (decision 0003).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Done.
    Done,
    /// `describe`, `destroy`: it positively does not exist.
    Absent,
    /// `doctor`: something that sandboxes need is missing.
    Unfit,
    /// `egress why`: the policy denies it.
    Denied,
    /// `egress verify`: something that is denied was reached, or everything is allowed.
    Open,
    /// An argument does not parse or is out of range.
    Usage,
    /// `run`, `exec`: the command ran into its timeout.
    TimedOut,
    /// Sandbar failed; the state is unknown or unchanged, as the message says.
    Failed,
    /// `run`, `exec`: the command was found but is not executable.
    NotExecutable,
    /// `run`, `exec`: the command was not found.
    NotFound,
    /// `run`, `exec`: the command's own end.
    Command(sandbar::ExitStatus),
    /// This process was asked to end by this signal, and did.
    Interrupted(i32),
    /// Whoever read our output went away: as if `SIGPIPE` had ended us.
    ReaderGone,
}

/// The number of `SIGPIPE`.
const SIGPIPE: i32 = 13;

impl ExitStatus {
    pub(crate) fn code(self) -> u8 {
        let code = match self {
            Self::Done => 0,
            Self::Absent | Self::Unfit | Self::Denied | Self::Open => 1,
            Self::Usage => 2,
            Self::TimedOut => 124,
            Self::Failed => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Command(status) => status.to_code(),
            Self::Interrupted(signal) => 128 + signal,
            Self::ReaderGone => 128 + SIGPIPE,
        };
        // A process' own code is one byte, so only a backend that answers nonsense gets here; nonsense is no success.
        u8::try_from(code).unwrap_or(137)
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        status.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_decision_0003() {
        use sandbar::ExitStatus as Command;
        for (status, code) in [
            (ExitStatus::Done, 0),
            (ExitStatus::Absent, 1),
            (ExitStatus::Unfit, 1),
            (ExitStatus::Denied, 1),
            (ExitStatus::Open, 1),
            (ExitStatus::Usage, 2),
            (ExitStatus::TimedOut, 124),
            (ExitStatus::Failed, 125),
            (ExitStatus::NotExecutable, 126),
            (ExitStatus::NotFound, 127),
            (ExitStatus::Command(Command::Code(3)), 3),
            (ExitStatus::Command(Command::Code(255)), 255),
            (ExitStatus::Command(Command::Signal(9)), 137),
            (ExitStatus::Command(Command::Unknown), 137),
            (ExitStatus::Command(Command::Code(256)), 137),
            (ExitStatus::Command(Command::Code(-1)), 137),
            (ExitStatus::Interrupted(2), 130),
            (ExitStatus::ReaderGone, 141),
        ] {
            assert_eq!(status.code(), code, "{status:?}");
        }
    }
}
