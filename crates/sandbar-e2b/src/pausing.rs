//! Sleep and waking. E2B has a pause that keeps memory; what came of it is looked at inside.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use sandbar_core::{
    Command, DeadlineAction, Error, ErrorKind, HibernationOutcome, Pausing, Result, RunOptions, Sandbox as _,
};
use sandbar_wire::e2b::{OnTimeout, PauseMode, SandboxDetail, SandboxState};

use crate::E2bSandbox;
use crate::api::Paused;
use crate::config::BACKEND;
use crate::deadline::until;
use crate::error::absent;
use crate::marks::Marks;
use crate::record;

/// How long the look at processes may take after a resume.
const LOOK: Duration = Duration::from_secs(20);

/// Ticks of a second in `/proc`, which Linux never changes for programs.
const TICKS: u64 = 100;

#[async_trait]
impl Pausing for E2bSandbox {
    async fn hibernate(&self) -> Result<HibernationOutcome> {
        const OPERATION: &str = "hibernate";
        let (id, api) = (self.access.id(), self.access.api());
        if self.leases.holds(id) {
            let why = "it has to end with its maker, and what sleeps at E2B has no end";
            return Err(Error::unsupported(OPERATION, "sleep of an owned sandbox", why).with_backend(BACKEND));
        }
        let before = self.detail(OPERATION).await?;
        if before.listed.state == SandboxState::Running {
            self.given(|given| given.end = record::deadline(&before.listed));
        }
        let paused = api.pause(OPERATION, id).await?;
        let after = self.detail(OPERATION).await?;
        if after.listed.state != SandboxState::Paused {
            let message = format!("E2B says that sandbox `{id}` was paused, and it is still running");
            return Err(Error::new(ErrorKind::Conflict, OPERATION, message).with_backend(BACKEND));
        }
        let keeps_memory = after.pause_mode != Some(PauseMode::Filesystem);
        let detail = match (paused, keeps_memory) {
            (_, false) => Some("its files were kept, and not its memory".to_owned()),
            (Paused::Already, true) => Some("it was paused already".to_owned()),
            (Paused::Now, true) => None,
        };
        Ok(HibernationOutcome { processes_preserved: keeps_memory, mechanism: "pause".to_owned(), detail })
    }

    async fn resume(&self) -> Result<HibernationOutcome> {
        let mechanism = "resume".to_owned();
        let began = Instant::now();
        if !self.wake_up("resume").await? {
            let detail = Some("it was running".to_owned());
            return Ok(HibernationOutcome { processes_preserved: true, mechanism, detail });
        }
        // Not what was asked for, but what is there.
        Ok(match self.has_processes_from_before(began).await {
            Ok(true) => HibernationOutcome { processes_preserved: true, mechanism, detail: None },
            Ok(false) => HibernationOutcome {
                processes_preserved: false,
                mechanism,
                detail: Some("its first process is younger than the resume".to_owned()),
            },
            Err(error) => HibernationOutcome {
                processes_preserved: false,
                mechanism,
                detail: Some(format!("whether its processes live on could not be seen: {error}")),
            },
        })
    }

    async fn set_deadline_action(&self, _action: DeadlineAction) -> Result<()> {
        let why = "E2B takes it at creation, and never again";
        Err(Error::unsupported("set_deadline_action", "another deadline action", why).with_backend(BACKEND))
    }
}

impl E2bSandbox {
    /// Wakes it if it sleeps, with as much time as it has a right to. Whether it slept.
    pub(crate) async fn wake_up(&self, operation: &'static str) -> Result<bool> {
        let detail = self.detail(operation).await?;
        if detail.listed.state == SandboxState::Running {
            self.access.learn(&detail);
            return Ok(false);
        }
        let time = self.time_after_sleep(&detail);
        let answer = self.access.api().connect(operation, self.id(), time).await?;
        let answer = answer.ok_or_else(|| absent(operation, self.id()))?;
        self.access.made(&answer);
        Ok(true)
    }

    /// One that sleeps at its deadline has as much time again as it was given last; one that ends there has no more than it had.
    fn time_after_sleep(&self, detail: &SandboxDetail) -> Duration {
        let marks = detail.listed.metadata.as_ref().map(Marks::of).unwrap_or_default();
        let given = self.given(|given| *given);
        let lifetime =
            given.lifetime.or(marks.lifetime).unwrap_or_else(|| self.access.api().config().lifetime());
        let sleeps = match detail.lifecycle {
            Some(lifecycle) => lifecycle.on_timeout == OnTimeout::Pause,
            None => marks.on_deadline == Some(DeadlineAction::Pause),
        };
        match given.end {
            Some(end) if !sleeps => until(Timestamp::now(), end).max(Duration::from_secs(1)),
            _ => lifetime,
        }
    }

    /// Whether the first process inside is older than the resume that began then: a start from files alone makes a new one.
    async fn has_processes_from_before(&self, began: Instant) -> Result<bool> {
        let command = Command::new("cat").args(["/proc/1/stat", "/proc/uptime"]);
        let output = self.commands().run_opts(&command, RunOptions::default().with_timeout(LOOK)).await?;
        let elapsed = began.elapsed();
        match age(&output.stdout_lossy()) {
            Some(age) => Ok(age > elapsed),
            None => Err(Error::new(ErrorKind::Protocol, "resume", "`/proc` inside can't be read")
                .with_backend(BACKEND)),
        }
    }
}

/// How old the first process is, of `/proc/1/stat` and `/proc/uptime`.
fn age(text: &str) -> Option<Duration> {
    // The name may hold anything, and ends at the last bracket; the start is the 20th field behind it.
    let (_, fields) = text.rsplit_once(')')?;
    let start: u64 = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let uptime = fields.lines().nth(1)?.split_ascii_whitespace().next()?;
    let uptime: f64 = uptime.parse().ok().filter(|uptime: &f64| uptime.is_finite() && *uptime >= 0.0)?;
    let up = Duration::try_from_secs_f64(uptime).ok()?;
    Some(up.saturating_sub(Duration::from_millis(start.saturating_mul(1000 / TICKS))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(start: u64, uptime: &str) -> String {
        format!("1 (odd ) name) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {start} 9 10\n{uptime} 99.00\n")
    }

    #[test]
    fn the_first_process_is_as_old_as_it_is() {
        assert_eq!(age(&inside(250, "10.00")), Some(Duration::from_millis(7500)));
        assert_eq!(age(&inside(250, "1.00")), Some(Duration::ZERO));
        for odd in ["", "1 (x) S", &inside(1, "-3"), &inside(1, "nan"), &inside(1, "x")] {
            assert_eq!(age(odd), None, "{odd}");
        }
    }

    proptest::proptest! {
        #[test]
        fn anything_that_comes_from_inside_is_read_or_not(text in ".*", start: u64, uptime in "[0-9.e]{0,9}") {
            let _ = age(&text);
            let _ = age(&inside(start, &uptime));
        }
    }
}
