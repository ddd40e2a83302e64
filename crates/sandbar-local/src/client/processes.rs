use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream;
use sandbar_core::{
    Command, PartialOutput, Process, ProcessEvent, ProcessEvents, ProcessId, ProcessInfo, Processes, Result,
    Signal, SpawnOptions, StdinMode,
};
use sandbar_wire::envd::{Channel, Code, Empty, ListResponse};

use super::control::{Control, Handle};
use super::fault;
use super::link::Link;
use super::start::{Followed, Said, Stopped, Wish, timed_out};

const SPAWN: &str = "spawn";
const ATTACH: &str = "attach";
const LIST: &str = "list processes";

/// The processes of a sandbox: handles outlive the call, so they share the link.
#[derive(Debug)]
pub(crate) struct Shared(pub(crate) Arc<Link>);

#[async_trait]
impl Processes for Shared {
    async fn spawn(&self, command: &Command, options: SpawnOptions) -> Result<Process> {
        let SpawnOptions { cwd, env, user, timeout, stdin, pty, tag } = options;
        let wish = Wish {
            command,
            cwd: cwd.as_ref(),
            env: &env,
            user: user.as_ref(),
            timeout,
            stdin: stdin == StdinMode::Open,
            pty,
            tag,
        };
        match self.0.start(wish, SPAWN).await? {
            Ok(process) => Ok(self.handle(process, pty.is_some(), timeout)),
            Err(error) => Err(fault::rpc(SPAWN, &error)),
        }
    }

    async fn list(&self) -> Result<Vec<ProcessInfo>> {
        let answer = self.0.call::<ListResponse>("/process.Process/List", &Empty {}, None, LIST).await?;
        let list = answer.map_err(|error| fault::rpc(LIST, &error))?;
        let info = |process: sandbar_wire::envd::ProcessInfo| ProcessInfo {
            pid: process.pid,
            tag: process.tag,
            argv: std::iter::once(process.config.cmd).chain(process.config.args).collect(),
            cwd: process.config.cwd,
        };
        Ok(list.processes.into_iter().map(info).collect())
    }

    async fn attach(&self, pid: ProcessId) -> Result<Process> {
        // Whether it has a terminal decides how it is written to, and only its output would tell; asking for its size does.
        match self.0.connect_to(pid, ATTACH).await? {
            Ok(process) => {
                let terminal = self.has_terminal(pid).await?;
                Ok(self.handle(process, terminal, None))
            }
            Err(error) if error.code == Code::NotFound => {
                Err(sandbar_core::Error::not_found(ATTACH, format!("process {pid}"))
                    .with_backend(crate::config::BACKEND))
            }
            Err(error) => Err(fault::rpc(ATTACH, &error)),
        }
    }

    async fn signal(&self, pid: ProcessId, signal: Signal) -> Result<bool> {
        Control::pipes(&self.0, pid).signal_process(signal).await
    }
}

impl Shared {
    /// Whether the process has a terminal: an update without a size changes nothing, and is refused where there is none.
    async fn has_terminal(&self, pid: ProcessId) -> Result<bool> {
        let message = sandbar_wire::envd::UpdateRequest {
            process: sandbar_wire::envd::ProcessSelector::pid(pid),
            pty: None,
        };
        Ok(self.0.call::<Empty>("/process.Process/Update", &message, None, ATTACH).await?.is_ok())
    }

    fn handle(&self, process: Followed, terminal: bool, timeout: Option<std::time::Duration>) -> Process {
        let pid = process.pid;
        let control = Arc::new(Handle { link: Arc::clone(&self.0), pid, terminal });
        Process { pid, events: events(Arc::clone(&self.0), process, timeout), control }
    }
}

fn events(link: Arc<Link>, process: Followed, timeout: Option<std::time::Duration>) -> ProcessEvents {
    let state = Some((link, process));
    stream::unfold(state, move |state| async move {
        let (link, mut process) = state?;
        match link.next_of(&mut process, SPAWN).await {
            Ok(Said::Data(channel, bytes)) => {
                let event = match channel {
                    Channel::Stdout => ProcessEvent::Stdout(bytes),
                    Channel::Stderr => ProcessEvent::Stderr(bytes),
                    Channel::Pty => ProcessEvent::Terminal(bytes),
                };
                Some((Ok(event), Some((link, process))))
            }
            Ok(Said::End(exit)) => Some((Ok(ProcessEvent::Exit(exit)), None)),
            Err(Stopped::TimedOut) => {
                let partial = PartialOutput { ended: Some(true), ..PartialOutput::default() };
                Some((Err(timed_out(SPAWN, timeout).with_partial(partial)), None))
            }
            Err(Stopped::TimedOutSilently) => {
                let ended = Control::pipes(&link, process.pid).end_at_last().await;
                let partial = PartialOutput { ended, ..PartialOutput::default() };
                Some((Err(timed_out(SPAWN, timeout).with_partial(partial)), None))
            }
            Err(Stopped::Failed(error)) => Some((Err(error), None)),
        }
    })
    .boxed()
}
