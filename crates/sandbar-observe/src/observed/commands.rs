use async_trait::async_trait;
use sandbar_core::{Command, Commands, EnvVars, Error, GuestPath, Output, Result, RunOptions, UserName};
use serde_json::{Map, Value};

use super::ObservedSandbox;
use super::observation::pass_on;
use crate::event::details;

#[async_trait]
impl Commands for ObservedSandbox {
    async fn run(&self, command: &Command) -> Result<Output> {
        self.run_opts(command, RunOptions::default()).await
    }

    async fn run_opts(&self, command: &Command, mut options: RunOptions) -> Result<Output> {
        let mut operation = self
            .begin("run", |detail| {
                self.observation.command(command, detail);
                started(options.cwd.as_ref(), options.user.as_ref(), &options.env, detail);
            })
            .await?;
        pass_on(operation.span(), &mut options.env);
        let done = operation.cause(self.inner.commands().run_opts(command, options)).await;
        match &done {
            Ok(output) => {
                operation.details(|detail| details::exit(output.status, output.cause, detail));
                operation.detail("stdout_bytes", output.stdout.len());
                operation.detail("stderr_bytes", output.stderr.len());
                operation.detail("truncated", output.truncated);
            }
            Err(error) => operation.detail("ended", error.partial().and_then(|partial| partial.ended)),
        }
        let partial = match &done {
            Ok(output) => Some(sandbar_core::PartialOutput {
                stdout: output.stdout.clone(),
                stderr: output.stderr.clone(),
                ended: Some(true),
            }),
            Err(_) => None,
        };
        operation.end(done).await.map_err(|error| match partial {
            // It ran, and what it said is not lost with the record of its end.
            Some(partial) => Error::with_partial(error, partial),
            None => error,
        })
    }
}

/// What is told of how a command was started: nothing of what it reads, and of its environment the names.
pub(super) fn started(
    cwd: Option<&GuestPath>,
    user: Option<&UserName>,
    env: &EnvVars,
    detail: &mut Map<String, Value>,
) {
    if let Some(cwd) = cwd {
        detail.insert("cwd".into(), details::path(cwd));
    }
    if let Some(user) = user {
        detail.insert("user".into(), details::word(user.as_str()));
    }
    if !env.is_empty() {
        detail.insert("env".into(), details::env_names(env));
    }
}
