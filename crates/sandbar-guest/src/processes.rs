use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream;
use jiff::Timestamp;
use sandbar_core::{
    Command, Error, ErrorKind, PartialOutput, Process, ProcessEvent, ProcessEvents, ProcessId, ProcessInfo,
    ProcessInput, ProcessOrigin, ProcessState, Processes, Result, Signal, SignalReach, SpawnOptions,
    StdinMode,
};
use sandbar_wire::envd::{
    Channel, Code, Empty, ListResponse, ProcessRow, ProcessTable, RowInput, StartedRow,
};

use crate::client::GuestClient;
use crate::control::{Control, Handle};
use crate::fault;
use crate::operation::Operation;
use crate::start::{Followed, Said, Stopped, Wish, timed_out};

const SPAWN: &str = "spawn";
const ATTACH: &str = "attach";
const LIST: &str = "list processes";
const SIGNAL: &str = "signal";
/// The agent, to all that is inside.
const AGENT: ProcessId = 1;
/// Most processes that a listing may have: as many as Linux numbers unless told otherwise (`PID_MAX_DEFAULT`); an agent that lists more is not ours.
const MAX_ROWS: usize = 32_768;
/// Most bytes of a process' arguments, each with one for its end: what the kernel gives of a command line at once.
const MAX_ARGV: usize = 4096;

#[async_trait]
impl Processes for GuestClient {
    async fn spawn(&self, command: &Command, options: SpawnOptions) -> Result<Process> {
        let operation = self.operation(SPAWN);
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
        match self.start(wish, operation).await? {
            Ok(process) => Ok(self.handle(process, pty.is_some(), timeout)),
            Err(error) => Err(self.start_fault(operation, &error)),
        }
    }

    async fn list(&self) -> Result<Vec<ProcessInfo>> {
        let operation = self.operation(LIST);
        let answer = self.call::<ListResponse>("/process.Process/List", &Empty {}, None, operation).await?;
        let list = answer.map_err(|error| fault::rpc(operation, &error))?;
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
        let operation = self.operation(LIST);
        let answer =
            self.call::<ProcessTable>("/process.Process/ListAll", &Empty {}, None, operation).await?;
        match answer {
            Ok(table) if table.processes.len() > MAX_ROWS => {
                let why =
                    format!("it lists {} processes: expected at most {MAX_ROWS}", table.processes.len());
                Err(fault::nonsense(operation, &why))
            }
            Ok(table) => Ok(table.processes.into_iter().map(row).collect()),
            Err(error) if error.code == Code::Unimplemented => {
                Err(too_old(operation, "a list of all processes"))
            }
            Err(error) => Err(fault::rpc(operation, &error)),
        }
    }

    async fn attach(&self, pid: ProcessId) -> Result<Process> {
        let operation = self.operation(ATTACH);
        // Whether it has a terminal decides how it is written to, and only its output would tell; asking for its size does.
        match self.connect_to(pid, operation).await? {
            Ok(process) => {
                let terminal = self.has_terminal(pid).await?;
                Ok(self.handle(process, terminal, None))
            }
            Err(error) if error.code == Code::NotFound => {
                Err(sandbar_core::Error::not_found(operation.name, format!("process {pid}"))
                    .with_backend(operation.backend))
            }
            Err(error) => Err(fault::rpc(operation, &error)),
        }
    }

    async fn signal(&self, pid: ProcessId, signal: Signal) -> Result<bool> {
        Control::pipes(self, pid).signal_process(signal).await
    }

    async fn signal_any(&self, pid: ProcessId, signal: Signal, reach: SignalReach) -> Result<bool> {
        let operation = self.operation(SIGNAL);
        if pid == AGENT {
            let message = "process 1 is Sandbar's own and can't be signalled";
            return Err(operation
                .fail(ErrorKind::PermissionDenied, message)
                .with_hint(format!("`sandbar destroy {}` ends the sandbox", self.id())));
        }
        match Control::pipes(self, pid).signal_whoever(signal, reach).await? {
            Some(there) => Ok(there),
            None => {
                Err(too_old(operation, "a signal to a process that was not started through the contract"))
            }
        }
    }
}

/// The sandbox was made by a version that can't do that.
fn too_old(operation: Operation, feature: &str) -> Error {
    Error::unsupported(operation.name, feature, "the sandbox was made by an older version")
        .with_backend(operation.backend)
        .with_hint("make a new sandbox")
}

/// Arguments as far as they are shown: what is inside may write them.
pub(crate) fn bounded(argv: Vec<String>) -> Vec<String> {
    let mut left = MAX_ARGV;
    let fits = |mut word: String| {
        // Each word costs a byte of its own, so that empty ones have an end as well.
        left = left.checked_sub(1)?;
        cut(&mut word, left);
        left -= word.len();
        Some(word)
    };
    argv.into_iter().map_while(fits).collect()
}

/// As long a name as anybody needs for a user, a tag or a folder.
pub(crate) fn short(mut text: String) -> String {
    cut(&mut text, MAX_ARGV);
    text
}

fn cut(text: &mut String, most: usize) {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
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
        tag: tag.map(short),
        cwd: cwd.map(short),
        origin,
        parent,
        user: user.map(short),
        started_at: started_unix_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()),
        state: state.and_then(state_of),
        input,
        ..ProcessInfo::new(pid, bounded(argv))
    }
}

/// The kernel's letters (proc(5)).
pub(crate) fn state_of(letter: char) -> Option<ProcessState> {
    match letter {
        'R' => Some(ProcessState::Running),
        'S' | 'D' | 'I' => Some(ProcessState::Waiting),
        'T' | 't' => Some(ProcessState::Stopped),
        'Z' | 'X' => Some(ProcessState::Ended),
        _ => None,
    }
}

impl GuestClient {
    /// Whether the process has a terminal: an update without a size changes nothing, and is refused where there is none.
    pub(crate) async fn has_terminal(&self, pid: ProcessId) -> Result<bool> {
        let operation = self.operation(ATTACH);
        let message = sandbar_wire::envd::UpdateRequest {
            process: sandbar_wire::envd::ProcessSelector::pid(pid),
            pty: None,
        };
        Ok(self.call::<Empty>("/process.Process/Update", &message, None, operation).await?.is_ok())
    }

    fn handle(&self, process: Followed, terminal: bool, timeout: Option<std::time::Duration>) -> Process {
        let pid = process.pid;
        let control = Arc::new(Handle { client: self.clone(), pid, terminal });
        Process { pid, events: events(self.clone(), process, timeout), control }
    }
}

fn events(client: GuestClient, process: Followed, timeout: Option<std::time::Duration>) -> ProcessEvents {
    let operation = client.operation(SPAWN);
    let state = Some((client, process));
    stream::unfold(state, move |state| async move {
        let (client, mut process) = state?;
        match client.next_of(&mut process, operation).await {
            Ok(Said::Data(channel, bytes)) => {
                let event = match channel {
                    Channel::Stdout => ProcessEvent::Stdout(bytes),
                    Channel::Stderr => ProcessEvent::Stderr(bytes),
                    Channel::Pty => ProcessEvent::Terminal(bytes),
                };
                Some((Ok(event), Some((client, process))))
            }
            Ok(Said::End(exit)) => Some((Ok(ProcessEvent::Exit(exit)), None)),
            Err(Stopped::TimedOut) => {
                let partial = PartialOutput { ended: Some(true), ..PartialOutput::default() };
                Some((Err(timed_out(operation, timeout).with_partial(partial)), None))
            }
            Err(Stopped::TimedOutSilently) => {
                let ended = Control::pipes(&client, process.pid).end_at_last().await;
                let partial = PartialOutput { ended, ..PartialOutput::default() };
                Some((Err(timed_out(operation, timeout).with_partial(partial)), None))
            }
            Err(Stopped::Failed(error)) => Some((Err(error), None)),
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_an_end_whoever_wrote_them() {
        let plain = vec!["a".to_owned(), String::new(), "b c".to_owned()];
        assert_eq!(bounded(plain.clone()), plain);
        let shown = bounded(vec!["x".to_owned(), "ü".repeat(5000), "y".to_owned()]);
        assert_eq!(shown[1].len(), MAX_ARGV - 4);
        assert!(bounded(vec![String::new(); 100_000]).len() <= MAX_ARGV);
        assert_eq!(short("ü".repeat(5000)).len(), MAX_ARGV);
    }
}
