use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use sandbar_core::{
    Command, Error, ErrorKind, PartialOutput, Process, ProcessEvent, ProcessEvents, ProcessId, ProcessInfo,
    Processes, Result, Signal, SignalReach, SpawnOptions, StdinMode,
};
use sandbar_wire::envd::{Channel, Code};

use super::EnvdClient;
use super::commands::BACKSTOP;
use super::control::Held;
use super::followed::{Watched, note};
use crate::fault;
use crate::start::{Said, Stopped, Wish, timed_out};

const SPAWN: &str = "spawn";
const ATTACH: &str = "attach";
const SIGNAL: &str = "signal";
/// The first process of the sandbox: everything ends with it.
const INIT: ProcessId = 1;

#[async_trait]
impl Processes for EnvdClient {
    /// As with [`Commands`](sandbar_core::Commands) here, one that ends while another one holds its output is found to be gone by looking for it.
    async fn spawn(&self, command: &Command, options: SpawnOptions) -> Result<Process> {
        let operation = self.guest.operation(SPAWN);
        let SpawnOptions { cwd, env, user, timeout, stdin, pty, tag } = options;
        let wish = Wish {
            command,
            cwd: cwd.as_ref(),
            env: &env,
            user: user.as_ref(),
            timeout: timeout.map(|timeout| timeout.saturating_add(BACKSTOP)),
            stdin: stdin == StdinMode::Open,
            pty,
            tag,
        };
        match self.begin(wish, operation).await? {
            Ok(process) => {
                let watched = Watched::new(self.clone(), process, user, timeout);
                Ok(self.handle(watched, pty.is_some(), timeout))
            }
            Err(error) => Err(self.refused_start(operation, &error)),
        }
    }

    async fn list(&self) -> Result<Vec<ProcessInfo>> {
        self.guest.list().await
    }

    async fn list_all(&self) -> Result<Vec<ProcessInfo>> {
        self.table().await
    }

    async fn attach(&self, pid: ProcessId) -> Result<Process> {
        let operation = self.guest.operation(ATTACH);
        match self.guest.connect_to(pid, operation).await? {
            Ok(process) => {
                let terminal = self.guest.has_terminal(pid).await?;
                let watched = Watched::new(self.clone(), process, None, None);
                Ok(self.handle(watched, terminal, None))
            }
            Err(error) if error.code == Code::NotFound => {
                Err(Error::not_found(ATTACH, format!("process {pid}")).with_backend(operation.backend))
            }
            Err(error) => Err(fault::rpc(operation, &error)),
        }
    }

    async fn signal(&self, pid: ProcessId, signal: Signal) -> Result<bool> {
        self.signal_started(pid, signal, self.guest.operation(SIGNAL)).await
    }

    async fn signal_any(&self, pid: ProcessId, signal: Signal, reach: SignalReach) -> Result<bool> {
        let operation = self.guest.operation(SIGNAL);
        if pid == INIT {
            let message = "process 1 is the sandbox' own and can't be signalled";
            return Err(operation
                .fail(ErrorKind::PermissionDenied, message)
                .with_hint(format!("`sandbar destroy {}` ends the sandbox", self.guest.id())));
        }
        self.signal_whoever(pid, signal, reach, operation).await
    }
}

impl EnvdClient {
    fn handle(&self, watched: Watched, terminal: bool, timeout: Option<Duration>) -> Process {
        let pid = watched.pid();
        let control = Arc::new(Held::new(self.clone(), pid, terminal));
        Process { pid, events: self.events(watched, timeout), control }
    }

    fn events(&self, watched: Watched, timeout: Option<Duration>) -> ProcessEvents {
        let client = self.clone();
        let operation = self.guest.operation(SPAWN);
        let state = Some((watched, None));
        stream::unfold(state, move |state: Option<(Watched, Option<_>)>| {
            let client = client.clone();
            async move {
                let (mut watched, pending) = state?;
                if let Some(exit) = pending {
                    return Some((Ok(ProcessEvent::Exit(exit)), None));
                }
                match watched.next(operation).await {
                    Ok(Said::Data(channel, bytes)) => {
                        let event = match channel {
                            Channel::Stdout => ProcessEvent::Stdout(bytes),
                            Channel::Stderr => ProcessEvent::Stderr(bytes),
                            Channel::Pty => ProcessEvent::Terminal(bytes),
                        };
                        Some((Ok(event), Some((watched, None))))
                    }
                    Ok(Said::End(exit)) if watched.gave_up() => {
                        let event = ProcessEvent::Stderr(note(watched.pid()).into());
                        Some((Ok(event), Some((watched, Some(exit)))))
                    }
                    Ok(Said::End(exit)) => Some((Ok(ProcessEvent::Exit(exit)), None)),
                    Err(Stopped::TimedOut) => {
                        let partial = PartialOutput { ended: Some(true), ..PartialOutput::default() };
                        Some((Err(timed_out(operation, timeout).with_partial(partial)), None))
                    }
                    Err(Stopped::TimedOutSilently) => {
                        let ended = client.end_at_last(watched.pid(), operation).await;
                        let partial = PartialOutput { ended, ..PartialOutput::default() };
                        Some((Err(timed_out(operation, timeout).with_partial(partial)), None))
                    }
                    Err(Stopped::Failed(error)) => Some((Err(error), None)),
                }
            }
        })
        .boxed()
    }
}
