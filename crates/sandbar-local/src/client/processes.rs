use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream;
use jiff::Timestamp;
use sandbar_core::{
    Command, Error, PartialOutput, Process, ProcessEvent, ProcessEvents, ProcessId, ProcessInfo,
    ProcessInput, ProcessOrigin, ProcessState, Processes, Result, Signal, SignalReach, SpawnOptions,
    StdinMode,
};
use sandbar_wire::envd::{
    Channel, Code, Empty, ListResponse, ProcessRow, ProcessTable, RowInput, StartedRow,
};

use super::control::{Control, Handle};
use super::fault;
use super::link::Link;
use super::start::{Followed, Said, Stopped, Wish, timed_out};

const SPAWN: &str = "spawn";
const ATTACH: &str = "attach";
const LIST: &str = "list processes";
const SIGNAL: &str = "signal";

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
            tag: process.tag,
            cwd: process.config.cwd,
            ..ProcessInfo::new(
                process.pid,
                std::iter::once(process.config.cmd).chain(process.config.args).collect(),
            )
        };
        Ok(list.processes.into_iter().map(info).collect())
    }

    async fn list_all(&self) -> Result<Vec<ProcessInfo>> {
        let answer = self.0.call::<ProcessTable>("/process.Process/ListAll", &Empty {}, None, LIST).await?;
        match answer {
            Ok(table) => Ok(table.processes.into_iter().map(row).collect()),
            Err(error) if error.code == Code::Unimplemented => Err(too_old(LIST, "a list of all processes")),
            Err(error) => Err(fault::rpc(LIST, &error)),
        }
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

    async fn signal_any(&self, pid: ProcessId, signal: Signal, reach: SignalReach) -> Result<bool> {
        match Control::pipes(&self.0, pid).signal_whoever(signal, reach).await? {
            Some(there) => Ok(there),
            None => Err(too_old(SIGNAL, "a signal to a process that was not started through the contract")),
        }
    }
}

/// The sandbox was made by a version that can't do that.
fn too_old(operation: &'static str, feature: &str) -> Error {
    Error::unsupported(operation, feature, "the sandbox was made by an older version")
        .with_backend(crate::config::BACKEND)
        .with_hint("make a new sandbox")
}

fn row(row: ProcessRow) -> ProcessInfo {
    let ProcessRow { pid, parent, user, state, started_unix_ms, argv, started } = row;
    let origin = if started.is_some() { ProcessOrigin::Contract } else { ProcessOrigin::Inside };
    let input = started.as_ref().map(|started| match started.input {
        RowInput::Terminal => ProcessInput::Terminal,
        RowInput::Open => ProcessInput::Open,
        RowInput::None => ProcessInput::None,
    });
    let StartedRow { tag, cwd, .. } = started.unwrap_or_default();
    ProcessInfo {
        tag,
        cwd,
        origin,
        parent,
        user,
        started_at: started_unix_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()),
        state: state.and_then(state_of),
        input,
        ..ProcessInfo::new(pid, argv)
    }
}

/// The kernel's letters (proc(5)).
fn state_of(letter: char) -> Option<ProcessState> {
    match letter {
        'R' => Some(ProcessState::Running),
        'S' | 'D' | 'I' => Some(ProcessState::Waiting),
        'T' | 't' => Some(ProcessState::Stopped),
        'Z' | 'X' => Some(ProcessState::Ended),
        _ => None,
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
