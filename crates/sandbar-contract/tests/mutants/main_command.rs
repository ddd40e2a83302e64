use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use sandbar_core::{
    ExitStatus, Follow, LimitDemand, LogEvent, LogOptions, MainLogs, MainProcess, MainState, MainStatus,
    ResourceControl, Resources, RestartPolicy, Result, SandboxExt,
};

use crate::mutation::Mutation;
use crate::sandbox::MutantSandbox;

#[async_trait]
impl MainProcess for MutantSandbox {
    async fn status(&self) -> Result<Option<MainStatus>> {
        let mut status = self.inner.require_main_command()?.status().await?;
        if let Some(status) = &mut status
            && self.is(Mutation::MainEndsWell)
            && status.exit.is_some()
        {
            status.exit = Some(ExitStatus::Code(0));
        }
        if status.is_none() && self.is(Mutation::MainIsNeverAbsent) {
            return Ok(Some(MainStatus {
                program: "true".into(),
                restart: RestartPolicy::No,
                state: MainState::Exited,
                pid: None,
                started_at: None,
                restarts: 0,
                exit: None,
                next_start: None,
                problem: None,
            }));
        }
        Ok(status)
    }

    async fn logs(&self, mut options: LogOptions) -> Result<MainLogs> {
        match self.mutation {
            Some(Mutation::LogsDoNotFollow) => options.follow = Follow::No,
            Some(Mutation::LogsIgnoreTail) => options.tail = None,
            Some(Mutation::LogsIgnoreSince) => options.since = None,
            _ => {}
        }
        let logs = self.inner.require_main_command()?.logs(options).await?;
        if !self.is(Mutation::LogsAreText) {
            return Ok(logs);
        }
        Ok(logs
            .map(|event| {
                event.map(|event| match event {
                    LogEvent::Output(mut chunk) => {
                        chunk.bytes = Bytes::from(String::from_utf8_lossy(&chunk.bytes).into_owned());
                        LogEvent::Output(chunk)
                    }
                    other => other,
                })
            })
            .boxed())
    }
}

#[async_trait]
impl ResourceControl for MutantSandbox {
    async fn set_resources(&self, mut resources: Resources, mut demand: LimitDemand) -> Result<()> {
        match self.mutation {
            Some(Mutation::SetResourcesIsANoOp) => return Ok(()),
            Some(Mutation::SetsOtherLimits) => resources.pids = resources.pids.or(Some(7)),
            Some(Mutation::IgnoresDemand) => demand = LimitDemand::BestEffort,
            _ => {}
        }
        self.inner.require_resources()?.set_resources(resources, demand).await
    }
}
