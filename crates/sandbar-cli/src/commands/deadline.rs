use std::time::{Duration, Instant};

use sandbar::{
    CreateOptions, DeadlineAction, Error, ErrorKind, ExitStatus as CommandStatus, ProcessExit, SandboxId,
    SandboxProvider, State,
};
use tokio::time::sleep;

use crate::failure::Failure;
use crate::relay::End;

/// `SIGKILL`, by which a sandbox' processes end with it.
const SIGKILL: i32 = 9;
/// Between two looks, after the deadline, at whether the sandbox sleeps: whoever waits is a person.
const LOOK: Duration = Duration::from_millis(500);

/// The deadline that somebody typed for a new sandbox. Counted from before it was made, so it is over here no later than there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    limit: Duration,
    started: Instant,
    action: DeadlineAction,
}

impl Deadline {
    /// What was typed, where it was.
    pub(super) fn of(options: &CreateOptions) -> Option<Self> {
        options.deadline.map(|limit| Self { limit, started: Instant::now(), action: options.on_deadline })
    }

    /// Ends once the sandbox sleeps because of it: whatever runs in it then does not go on until somebody wakes it. Never ends where it is
    /// to be destroyed, as all in it ends then.
    pub(super) async fn sleeps(self, provider: &dyn SandboxProvider, id: &SandboxId) -> Failure {
        if self.action == DeadlineAction::Destroy {
            return std::future::pending().await;
        }
        sleep(self.limit.saturating_sub(self.started.elapsed())).await;
        loop {
            // Somebody may have moved the deadline. What can't be looked at is asked again: the command itself may still end.
            if let Ok(Some(record)) = provider.describe(id).await
                && record.state == State::Sleeping
            {
                return self.slept(id);
            }
            sleep(LOOK).await;
        }
    }

    fn slept(self, id: &SandboxId) -> Failure {
        let message = format!(
            "the sandbox's deadline of {:?} passed: it went to sleep, and the command with it",
            self.limit
        );
        Error::new(ErrorKind::Timeout, "run", message)
            .with_hint(format!("`sandbar resume {id}` wakes both, `sandbar ps {id}` then shows the command"))
            .into()
    }

    /// What a failure was, if it was that the deadline passed: a sandbox that is gone is then no riddle.
    pub(super) fn explain(self, failure: Failure) -> Failure {
        let gone = failure.error.as_ref().is_some_and(|error| {
            let lost =
                matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unavailable | ErrorKind::Conflict);
            lost && failure.status == crate::exit::ExitStatus::Failed
        });
        // One that sleeps is not gone, and its own error says what it is.
        let gone = gone && self.action == DeadlineAction::Destroy;
        if gone && self.is_over() { self.passed() } else { failure }
    }

    /// Whether it may be what ended a command.
    pub(super) fn ended(self, end: End) -> bool {
        let killed = matches!(
            end,
            End::Exited(ProcessExit { status: CommandStatus::Signal(SIGKILL) | CommandStatus::Unknown, .. })
        );
        killed && self.action == DeadlineAction::Destroy && self.is_over()
    }

    fn is_over(self) -> bool {
        self.started.elapsed() >= self.limit
    }

    pub(super) fn passed(self) -> Failure {
        let message =
            format!("the sandbox's deadline of {:?} passed: it was destroyed, and all in it", self.limit);
        Error::new(ErrorKind::Timeout, "run", message)
            .with_hint("give a longer `--deadline`, or end the command alone with `--timeout`")
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_gone_after_the_deadline_is_explained_by_it() {
        let of = |seconds| {
            Deadline::of(&CreateOptions {
                deadline: Some(Duration::from_secs(seconds)),
                ..CreateOptions::new()
            })
            .unwrap()
        };
        let (over, ahead) = (of(0), of(3600));
        let kind = |failure: Failure| failure.error.unwrap().kind();
        let gone = || Failure::from(Error::not_found("spawn", "sandbox `x`"));
        assert_eq!(kind(over.explain(gone())), ErrorKind::Timeout);
        assert_eq!(kind(ahead.explain(gone())), ErrorKind::NotFound);
        assert_eq!(kind(over.explain(Error::invalid("spawn", "no").into())), ErrorKind::InvalidInput);
        let program = Failure::new(crate::exit::ExitStatus::NotFound, Error::not_found("spawn", "`x`"));
        assert_eq!(kind(over.explain(program)), ErrorKind::NotFound);

        let exit = |status| End::Exited(ProcessExit { status, cause: None });
        assert!(over.ended(exit(CommandStatus::Signal(9))) && over.ended(exit(CommandStatus::Unknown)));
        assert!(!over.ended(exit(CommandStatus::Code(137))) && !over.ended(End::TimedOut));
        assert!(!ahead.ended(exit(CommandStatus::Signal(9))));
    }
}
