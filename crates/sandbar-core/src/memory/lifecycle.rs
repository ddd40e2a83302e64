use std::sync::Arc;

use async_trait::async_trait;

use super::create::insert;
use super::machine::Plan;
use super::sandbox::MemorySandbox;
use super::world::BACKEND;
use crate::{
    DeadlineAction, EgressPolicy, Error, ForkOptions, ForkOutcome, Forking, HibernationOutcome, Pausing,
    Result, Sandbox, State,
};

#[async_trait]
impl Pausing for MemorySandbox {
    async fn hibernate(&self) -> Result<HibernationOutcome> {
        let machine = self.machine("pause")?;
        let changed = machine.sleep();
        Ok(HibernationOutcome {
            processes_preserved: machine.state() == State::Sleeping,
            mechanism: "freeze".to_owned(),
            detail: (!changed).then(|| "it slept already".to_owned()),
        })
    }

    async fn resume(&self) -> Result<HibernationOutcome> {
        let machine = self.machine("resume")?;
        let changed = machine.wake();
        Ok(HibernationOutcome {
            processes_preserved: machine.state() == State::Running,
            mechanism: "thaw".to_owned(),
            detail: (!changed).then(|| "it ran already".to_owned()),
        })
    }

    async fn set_deadline_action(&self, action: DeadlineAction) -> Result<()> {
        self.machine("set deadline action")?.set_on_deadline(action);
        Ok(())
    }
}

#[async_trait]
impl Forking for MemorySandbox {
    async fn fork(&self, options: ForkOptions) -> Result<(Arc<dyn Sandbox>, ForkOutcome)> {
        let machine = self.running("fork")?;
        let ForkOptions { name, egress, volumes: _ } = options;
        if egress.is_some_and(|policy| policy != EgressPolicy::DenyAll) {
            return Err(Error::unsupported(
                "fork",
                "egress policy",
                "emulated programs have no network, so only `deny-all` is true",
            )
            .with_backend(BACKEND));
        }
        if !machine.plan.volumes.is_empty() {
            return Err(Error::unsupported("fork", "forking with volumes", "two sandboxes would share them")
                .with_backend(BACKEND));
        }
        let plan = Plan { name, resources: machine.resources(), ..machine.plan.clone() };
        let copied_bytes = machine.disk.lock().bytes_below(machine.root);
        let twin = insert(&self.world, plan, Some(machine.root), machine.on_deadline())?;
        twin.set_deadline(machine.deadline());
        let outcome = ForkOutcome { mechanism: "copy".to_owned(), copied_bytes, processes_preserved: false };
        Ok((Arc::new(Self::new(self.world.clone(), twin.id.clone())), outcome))
    }
}
