use std::time::{Duration, Instant};

use async_trait::async_trait;
use sandbar_core::{Command, Commands, Output, Result, RunOptions, Stdin};

use super::EnvdClient;
use super::control::Control;
use super::followed::{Watched, is_stderr, note};
use super::refusal::too_old;
use crate::commands::{Kept, shell_answer};
use crate::start::{Said, Stopped, Wish, timed_out};

const RUN: &str = "run";
/// How much longer than its timeout a command may go on before the agent ends it by itself: this client ends it with all that it started, and the agent
/// is there for when this client is not.
pub(super) const BACKSTOP: Duration = Duration::from_secs(15);

#[async_trait]
impl Commands for EnvdClient {
    /// A process that ends while another one holds its output is found to be gone by looking for it: its status is then
    /// [`ExitStatus::Unknown`](sandbar_core::ExitStatus::Unknown), with a line on standard error that says so.
    async fn run_opts(&self, command: &Command, options: RunOptions) -> Result<Output> {
        let operation = self.guest.operation(RUN);
        let RunOptions { cwd, env, user, timeout, stdin, output_limit } = options;
        let begun = Instant::now();
        let input = match stdin {
            Stdin::Null => None,
            Stdin::Bytes(bytes) => Some(bytes),
        };
        if input.is_some() {
            let version = self.version(RUN).await?;
            if !version.closes_stdin() {
                return Err(too_old(operation, "standard input with an end", version));
            }
        }
        let wish = Wish {
            command,
            cwd: cwd.as_ref(),
            env: &env,
            user: user.as_ref(),
            timeout: timeout.map(|timeout| timeout.saturating_add(BACKSTOP)),
            stdin: input.is_some(),
            pty: None,
            tag: None,
        };
        let starting = self.begin(wish, operation);
        // Nothing that comes before the start may take longer than the command itself.
        let started = match timeout {
            None => starting.await?,
            Some(bound) => match tokio::time::timeout(bound, starting).await {
                Ok(started) => started?,
                Err(_) => return Err(timed_out(operation, timeout).with_partial(Kept::new(0).partial(None))),
            },
        };
        let process = match started {
            Ok(process) => process,
            Err(error) => {
                return shell_answer(&error, begun).ok_or_else(|| self.refused_start(operation, &error));
            }
        };
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        let mut watched = Watched::new(self.clone(), process, user, left);
        let pid = watched.pid();
        let mut kept = Kept::new(output_limit);
        let reading = async {
            loop {
                match watched.next(operation).await {
                    Ok(Said::Data(channel, bytes)) if is_stderr(channel) => kept.stderr(&bytes),
                    Ok(Said::Data(_, bytes)) => kept.stdout(&bytes),
                    Ok(Said::End(exit)) => return Ok(exit),
                    Err(stopped) => return Err(stopped),
                }
            }
        };
        let ended = match input {
            None => reading.await,
            Some(bytes) => {
                let control = Control::pipes(self, pid);
                let writing = async {
                    // A program that does not read all of its input is none the worse for it; its exit tells.
                    let _ = control.write_all(bytes).await;
                    let _ = control.close().await;
                    std::future::pending::<std::convert::Infallible>().await
                };
                tokio::select! {
                    ended = reading => ended,
                    never = writing => match never {},
                }
            }
        };
        let gave_up = watched.gave_up();
        // The stream goes with it: one that somebody holds is no connection of ours any more.
        drop(watched);
        match ended {
            Ok(exit) => {
                if gave_up {
                    kept.note(&note(pid));
                }
                Ok(kept.output(exit, begun))
            }
            Err(Stopped::TimedOut) => {
                Err(timed_out(operation, timeout).with_partial(kept.partial(Some(true))))
            }
            Err(Stopped::TimedOutSilently) => {
                let ended = self.end_at_last(pid, operation).await;
                Err(timed_out(operation, timeout).with_partial(kept.partial(ended)))
            }
            Err(Stopped::Failed(error)) => Err(kept.failed(error)),
        }
    }
}
