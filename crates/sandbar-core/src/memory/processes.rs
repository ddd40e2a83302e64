use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::machine::Machine;
use super::process::{Entry, Input, pipe};
use super::run::{Feed, Start, not_started, prepare, start_fed};
use super::sandbox::MemorySandbox;
use super::world::{BACKEND, World};
use crate::{
    Command, Error, ErrorKind, Process, ProcessControl, ProcessId, ProcessInfo, ProcessInput, ProcessOrigin,
    Processes, PtySize, Result, SandboxId, Signal, SignalReach, SpawnOptions, StdinMode,
};

/// Signals that end nothing: the test whether a process is there, and the child's, window's and urgent-data notices.
const HARMLESS: &[i32] = &[0, 17, 18, 23, 28];

/// Signals that stop a process; not emulated.
const STOPPING: &[i32] = &[19, 20, 21, 22];

/// The highest signal number of Linux.
const MAX_SIGNAL: i32 = 64;

#[async_trait]
impl Processes for MemorySandbox {
    async fn spawn(&self, command: &Command, options: SpawnOptions) -> Result<Process> {
        let machine = self.running("spawn")?;
        let SpawnOptions { cwd, env, user, timeout, stdin, pty, tag } = options;
        if pty.is_some() {
            return Err(Error::unsupported("spawn", "terminals", "emulated programs know only plain pipes")
                .with_backend(BACKEND));
        }
        let (input, writer) = match stdin {
            StdinMode::Null => (Input::Null, None),
            StdinMode::Open => {
                let (writer, reader) = pipe();
                (Input::Pipe(reader), Some(writer))
            }
        };
        let start = Start { cwd, env, user, tag };
        let (launch, ends) = prepare(&machine, "spawn", command, start, input)?;
        let (pid, feed, events) = start_fed(&machine, launch, ends, writer, timeout)
            .map_err(|why| not_started("spawn", command, why))?;
        Ok(Process { pid, events, control: Arc::new(self.control(pid, feed)) })
    }

    async fn list(&self) -> Result<Vec<ProcessInfo>> {
        let machine = self.running("list processes")?;
        Ok(machine.processes.collect(|pid, entry| {
            entry.feed.as_ref()?;
            Some(info(pid, entry))
        }))
    }

    async fn list_all(&self) -> Result<Vec<ProcessInfo>> {
        let machine = self.running("list processes")?;
        Ok(machine.processes.collect(|pid, entry| Some(info(pid, entry))))
    }

    async fn attach(&self, pid: ProcessId) -> Result<Process> {
        let machine = self.running("attach")?;
        let feed = machine
            .processes
            .collect(|other, entry| entry.feed.clone().filter(|_| other == pid))
            .pop()
            .ok_or_else(|| Error::not_found("attach", format!("process {pid}")).with_backend(BACKEND))?;
        Ok(Process { pid, events: feed.listen(), control: Arc::new(self.control(pid, feed)) })
    }

    async fn signal(&self, pid: ProcessId, signal: Signal) -> Result<bool> {
        send(&*self.running("signal")?, pid, signal, SignalReach::Tree)
    }

    async fn signal_any(&self, pid: ProcessId, signal: Signal, reach: SignalReach) -> Result<bool> {
        send(&*self.running("signal")?, pid, signal, reach)
    }
}

fn info(pid: ProcessId, entry: &Entry) -> ProcessInfo {
    let argv = entry.argv.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
    let input = entry.feed.as_ref().map(|feed| match feed.stdin() {
        Some(_) => ProcessInput::Open,
        None => ProcessInput::None,
    });
    ProcessInfo {
        tag: entry.tag.clone(),
        cwd: entry.cwd.clone(),
        origin: if entry.feed.is_some() { ProcessOrigin::Contract } else { ProcessOrigin::Inside },
        input,
        ..ProcessInfo::new(pid, argv)
    }
}

impl MemorySandbox {
    fn control(&self, pid: ProcessId, feed: Arc<Feed>) -> Control {
        Control { world: self.world.clone(), sandbox: self.id.clone(), pid, feed }
    }
}

fn send(machine: &Machine, pid: ProcessId, Signal(signal): Signal, reach: SignalReach) -> Result<bool> {
    if !(0..=MAX_SIGNAL).contains(&signal) {
        return Err(Error::invalid(
            "signal",
            format!("{signal} is not a signal: expected 0 to {MAX_SIGNAL}"),
        ));
    }
    if STOPPING.contains(&signal) {
        return Err(Error::unsupported(
            "signal",
            "stop signals",
            "emulated processes can't be stopped singly",
        )
        .with_backend(BACKEND));
    }
    if HARMLESS.contains(&signal) {
        return Ok(machine.processes.is_alive(pid));
    }
    Ok(match reach {
        SignalReach::Tree => machine.processes.kill_tree(pid, signal),
        SignalReach::Process => machine.processes.kill(pid, signal),
    })
}

/// How to talk to an emulated process.
#[derive(Debug)]
struct Control {
    world: Arc<World>,
    sandbox: SandboxId,
    pid: ProcessId,
    feed: Arc<Feed>,
}

impl Control {
    fn machine(&self, operation: &'static str) -> Result<Arc<Machine>> {
        let machine = self.world.require(&self.sandbox, operation)?;
        machine.check_running(operation)?;
        Ok(machine)
    }
}

#[async_trait]
impl ProcessControl for Control {
    async fn write(&self, bytes: Bytes) -> Result<()> {
        self.machine("write")?;
        let closed = || {
            Error::new(
                ErrorKind::Conflict,
                "write",
                format!("the standard input of process {} is not open", self.pid),
            )
            .with_backend(BACKEND)
            .with_hint("spawn it with an open standard input")
        };
        let writer = self.feed.stdin().ok_or_else(closed)?;
        writer.write(&bytes).await.map_err(|_| closed())
    }

    async fn close_stdin(&self) -> Result<()> {
        self.machine("close stdin")?;
        self.feed.close_stdin();
        Ok(())
    }

    async fn resize(&self, _size: PtySize) -> Result<()> {
        self.machine("resize")?;
        Err(Error::new(ErrorKind::Conflict, "resize", format!("process {} has no terminal", self.pid))
            .with_backend(BACKEND))
    }

    async fn signal(&self, signal: Signal) -> Result<bool> {
        send(&*self.machine("signal")?, self.pid, signal, SignalReach::Tree)
    }
}
