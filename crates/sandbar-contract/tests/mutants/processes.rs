use async_trait::async_trait;
use futures::{StreamExt, stream};
use sandbar_core::{
    Command, Process, ProcessEvent, ProcessId, ProcessInfo, Processes, Result, SandboxExt, Signal,
    SignalReach, SpawnOptions,
};

use crate::mutation::Mutation;
use crate::sandbox::MutantSandbox;

#[async_trait]
impl Processes for MutantSandbox {
    async fn spawn(&self, command: &Command, mut options: SpawnOptions) -> Result<Process> {
        if self.is(Mutation::PipesForTerminal) {
            options.pty = None;
        }
        let mut process = self.inner.require_processes()?.spawn(command, options).await?;
        if self.is(Mutation::ExitComesFirst) {
            let events = process.events;
            let reordered = stream::once(async move {
                let (exits, output): (Vec<_>, Vec<_>) = events
                    .collect::<Vec<_>>()
                    .await
                    .into_iter()
                    .partition(|event| matches!(event, Ok(ProcessEvent::Exit(_))));
                stream::iter(exits.into_iter().chain(output))
            });
            process.events = reordered.flatten().boxed();
        }
        Ok(process)
    }

    async fn list(&self) -> Result<Vec<ProcessInfo>> {
        self.inner.require_processes()?.list().await
    }

    async fn attach(&self, pid: ProcessId) -> Result<Process> {
        self.inner.require_processes()?.attach(pid).await
    }

    async fn signal(&self, pid: ProcessId, signal: Signal) -> Result<bool> {
        let there = self.inner.require_processes()?.signal(pid, signal).await?;
        Ok(there || self.is(Mutation::SignalIsAlwaysTrue))
    }

    async fn list_all(&self) -> Result<Vec<ProcessInfo>> {
        let part = self.inner.require_processes()?;
        if self.is(Mutation::ListAllIsList) { part.list().await } else { part.list_all().await }
    }

    async fn signal_any(&self, pid: ProcessId, signal: Signal, reach: SignalReach) -> Result<bool> {
        let reach = if self.is(Mutation::SignalsTreesAlways) { SignalReach::Tree } else { reach };
        let there = self.inner.require_processes()?.signal_any(pid, signal, reach).await?;
        Ok(there || self.is(Mutation::SignalAnyIsAlwaysTrue))
    }
}
