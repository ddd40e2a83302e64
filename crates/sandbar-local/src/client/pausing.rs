use async_trait::async_trait;
use sandbar_core::{DeadlineAction, HibernationOutcome, Pausing, Result};

use super::link::Link;
use crate::ask::{ANSWER, misplaced};
use crate::shim::protocol::{Op, Reply};

const SLEEP: &str = "hibernate";
const WAKE: &str = "resume";
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
        if let Some(outcome) = self.start_again(WAKE).await? {
            return Ok(outcome);
        }
        match self.ask_shim_of_any(|| Op::Resume, ANSWER, WAKE).await? {
            Reply::Slept(slept) => Ok(slept.into()),
            _ => Err(misplaced(WAKE)),
        }
    }

    async fn set_deadline_action(&self, action: DeadlineAction) -> Result<()> {
        match self.ask_shim_of_any(|| Op::SetDeadlineAction { action }, ANSWER, ACTION).await? {
            Reply::ActionSet => Ok(()),
            _ => Err(misplaced(ACTION)),
        }
    }
}
