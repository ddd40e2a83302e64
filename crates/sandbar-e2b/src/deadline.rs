//! When a sandbox ends. E2B counts in whole seconds from now, and every sandbox of its ends.

use std::time::Duration;

use jiff::Timestamp;
use sandbar_core::{Deadline, DeadlineMode, Error, Result};
use sandbar_wire::e2b::SandboxState;

use crate::E2bSandbox;
use crate::config::BACKEND;
use crate::error::asleep;
use crate::record;

const OPERATION: &str = "set_deadline";

impl E2bSandbox {
    /// Lets it live this long from now on, earlier or later than before: for a heartbeat of whoever uses it. Looking at it is none.
    pub async fn keep_alive(&self, time: Duration) -> Result<Option<Timestamp>> {
        self.change_deadline(Deadline::In(time), DeadlineMode::Set).await
    }

    pub(crate) async fn change_deadline(
        &self,
        deadline: Deadline,
        mode: DeadlineMode,
    ) -> Result<Option<Timestamp>> {
        let now = Timestamp::now();
        let time = match deadline {
            Deadline::In(time) => time,
            Deadline::At(end) => until(now, end),
            Deadline::Never => {
                let error =
                    Error::unsupported(OPERATION, "no deadline", "E2B ends every sandbox at some time");
                return Err(error
                    .with_backend(BACKEND)
                    .with_hint("renew the deadline while the sandbox is in use"));
            }
        };
        let id = self.access.id();
        if mode == DeadlineMode::ExtendOnly {
            let detail = self.detail(OPERATION).await?;
            if detail.listed.state == SandboxState::Paused {
                return Err(asleep(OPERATION, id));
            }
            let in_force = record::deadline(&detail.listed);
            let wanted = now.checked_add(time).unwrap_or(Timestamp::MAX);
            if in_force.is_some_and(|in_force| in_force >= wanted) {
                return Ok(in_force);
            }
        }
        let asked = self.leases.set_end(id, time).unwrap_or(time);
        match self.access.api().set_timeout(OPERATION, id, asked).await {
            Ok(Some(())) => {}
            Ok(None) => return Err(self.not_running(OPERATION).await),
            Err(error) => return Err(self.in_the_way(OPERATION, error).await),
        }
        self.remember_lifetime(time);
        // An account's own limit may have made it less.
        let detail = self.detail(OPERATION).await?;
        Ok(record::deadline(&detail.listed))
    }
}

/// How long it is until then; what has passed is now.
pub(crate) fn until(now: Timestamp, end: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(now)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_passed_is_now() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(until(now, "2026-01-01T00:00:01.5Z".parse().unwrap()), Duration::from_millis(1500));
        assert_eq!(until(now, "2025-12-31T00:00:00Z".parse().unwrap()), Duration::ZERO);
    }
}
