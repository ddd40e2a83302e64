use std::ffi::OsString;

use async_trait::async_trait;
use bytes::Bytes;
use sandbar_core::{
    Command, Commands, EnvVars, Error, ErrorKind, ExitStatus, Output, PartialOutput, Result, RunOptions,
    Stdin,
};

use crate::mutation::Mutation;
use crate::sandbox::MutantSandbox;

#[async_trait]
impl Commands for MutantSandbox {
    async fn run_opts(&self, command: &Command, mut options: RunOptions) -> Result<Output> {
        let mut command = command.clone();
        match self.mutation {
            Some(Mutation::DropsEnv) => options.env = EnvVars::new(),
            Some(Mutation::DropsStdin) => options.stdin = Stdin::Null,
            Some(Mutation::IgnoresFolder) => options.cwd = None,
            Some(Mutation::WakesOnCommand) => self.inner.wake().await?,
            Some(Mutation::ParsesArgumentsAgain) => {
                command = Command::shell(command.argv().join(&OsString::from(" ")));
            }
            _ => {}
        }
        if self.is(Mutation::TimeoutWithoutKill)
            && let Some(timeout) = options.timeout.take()
        {
            let inner = self.inner.clone();
            let run = tokio::spawn(async move { inner.commands().run_opts(&command, options).await });
            return match tokio::time::timeout(timeout, run).await {
                Ok(Ok(ran)) => ran,
                Ok(Err(panic)) => Err(Error::new(ErrorKind::Unexpected, "run", panic.to_string())),
                Err(_) => Err(Error::new(ErrorKind::Timeout, "run", "the command took too long")
                    .with_partial(PartialOutput::default())),
            };
        }
        match self.inner.commands().run_opts(&command, options).await {
            Ok(output) => Ok(self.change(output)),
            Err(error) if self.is(Mutation::TimeoutLosesOutput) => {
                Err(Error::new(error.kind(), "run", error.message()).with_partial(PartialOutput::default()))
            }
            Err(error) => Err(error),
        }
    }
}

impl MutantSandbox {
    fn change(&self, mut output: Output) -> Output {
        match (self.mutation, output.status) {
            (Some(Mutation::SwallowsNonZeroExit), ExitStatus::Code(_))
            | (Some(Mutation::SwallowsSignals), ExitStatus::Signal(_))
            | (Some(Mutation::UnknownExitIsSuccess), ExitStatus::Unknown) => {
                output.status = ExitStatus::Code(0);
            }
            (Some(Mutation::LossyBytes), _) => {
                output.stdout = Bytes::from(output.stdout_lossy().into_owned());
            }
            (Some(Mutation::TrimsOutput), _) => {
                output.stdout = Bytes::from(output.stdout_lossy().trim().to_owned());
            }
            (Some(Mutation::MergesStreams), _) => {
                output.stdout = [output.stdout, std::mem::take(&mut output.stderr)].concat().into();
            }
            (Some(Mutation::HidesTruncation), _) => output.truncated = false,
            _ => {}
        }
        output
    }
}
