use std::time::Duration;

use async_trait::async_trait;
use sandbar_core::{DeadlineAction, HibernationOutcome, Pausing, Result};

use tokio::time::{Instant, sleep};

use super::link::{DYING, Link, SETTLING};
use crate::ask::{ANSWER, misplaced};
use crate::shim::protocol::{Op, Reply};

const SLEEP: &str = "pause";
const WAKE: &str = "resume";
/// Between two looks at one whose processes end.
const LOOK: Duration = Duration::from_millis(5);
const ACTION: &str = "set deadline action";

#[async_trait]
impl Pausing for Link {
    /// Mechanism `freeze` where a control group has a freezer, else `stop`: a signal to each process, which a shell inside may notice. Memory stays
    /// taken, and is offered back to the kernel where that can be asked for. Nothing survives a restart of the host but the files.
    async fn hibernate(&self) -> Result<HibernationOutcome> {
        match self.ask_shim_of_any(|| Op::Hibernate, ANSWER, SLEEP).await? {
            Reply::Slept(slept) => Ok(slept.into()),
            _ => Err(misplaced(SLEEP)),
        }
    }

    /// One that is stopped is started again: its files are as they were, its processes are new.
    async fn resume(&self) -> Result<HibernationOutcome> {
        let (dying, end) = (Instant::now() + DYING, Instant::now() + SETTLING);
        loop {
            if let Some(outcome) = self.start_again(WAKE).await? {
                return Ok(outcome);
            }
            match self.ask_shim_of_any(|| Op::Resume, ANSWER, WAKE).await {
                Ok(Reply::Slept(slept)) => return Ok(slept.into()),
                Ok(_) => return Err(misplaced(WAKE)),
                // Its processes ended meanwhile, or just before, and that is not written down yet: then it is to be started.
                Err(error) if self.is_ending(WAKE, &error, dying)? && Instant::now() < end => {
                    sleep(LOOK).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn set_deadline_action(&self, action: DeadlineAction) -> Result<()> {
        match self.ask_shim_of_any(|| Op::SetDeadlineAction { action }, ANSWER, ACTION).await? {
            Reply::ActionSet => Ok(()),
            _ => Err(misplaced(ACTION)),
        }
    }
}
