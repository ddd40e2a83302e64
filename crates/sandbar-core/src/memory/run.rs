use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, join, select};

use super::machine::Machine;
use super::process::{
    Ended, Input, Launch, Launched, NotStarted, Output, Pid, PipeReader, PipeWriter, Streams, pipe,
};
use super::queue::{Queue, queue};
use super::world::{BACKEND, SIGKILL};
use crate::{
    Command, EnvVars, Error, ErrorKind, ExitStatus, GuestPath, ProcessEvent, ProcessEvents, ProcessExit,
    Result, UserName,
};

/// Bytes of output passed on at a time.
const CHUNK: usize = 65_536;

/// Events kept for somebody who holds a handle and does not read.
const MAX_EVENTS: usize = 256;

/// How long a process waits for somebody who does not read its events before it goes on without them.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a command is started with.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    pub(super) cwd: Option<GuestPath>,
    pub(super) env: EnvVars,
    pub(super) user: Option<UserName>,
    pub(super) tag: Option<String>,
}

/// The far ends of a process' streams.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) stdout: PipeReader,
    pub(super) stderr: PipeReader,
}

/// What those who hold a handle on a process share.
#[derive(Debug, Default)]
pub(super) struct Feed {
    listeners: Mutex<Vec<Arc<Queue<ProcessEvent>>>>,
    stdin: Mutex<Option<PipeWriter>>,
}

/// Checks everything and puts a process together, to be launched.
pub(super) fn prepare(
    machine: &Machine,
    operation: &'static str,
    command: &Command,
    start: Start,
    stdin: Input,
) -> Result<(Launch, Ends)> {
    command.check()?;
    let Start { cwd, env, user, tag } = start;
    let (user, home) = match user.as_ref().map_or("user", UserName::as_str) {
        "user" => ("user", "/home/user"),
        "root" => ("root", "/root"),
        other => {
            return Err(Error::invalid(operation, format!("user `{other}` does not exist in the sandbox"))
                .with_backend(BACKEND));
        }
    };
    let folder = cwd.as_ref().map_or(home.as_bytes(), GuestPath::as_bytes).to_vec();
    {
        let disk = machine.disk.lock();
        if !disk.find(machine.root, &folder).is_ok_and(|node| disk.node(node).is_dir()) {
            let shown = cwd.as_ref().map_or(home.to_owned(), ToString::to_string);
            return Err(Error::invalid(operation, format!("working folder `{shown}` does not exist"))
                .with_backend(BACKEND));
        }
    }
    let mut variables = super::program::Env::new();
    let base = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", home), ("USER", user)];
    for (name, value) in base.into_iter().chain(machine.plan.env.iter()).chain(env.iter()) {
        variables.insert(name.as_bytes().to_vec(), value.as_bytes().to_vec());
    }
    let (out, stdout) = pipe();
    let (err, stderr) = pipe();
    let launch = Launch {
        argv: command.argv().iter().map(|argument| argument.as_encoded_bytes().to_vec()).collect(),
        env: variables,
        cwd: folder,
        user,
        streams: Streams { stdin, stdout: Output::Pipe(out), stderr: Output::Pipe(err) },
        tree: None,
        tag,
        asked_cwd: cwd.map(|cwd| cwd.to_string()),
    };
    Ok((launch, Ends { stdout, stderr }))
}

/// The next output; `None` once the stream is closed, or the process has ended and all it wrote was read.
pub(super) async fn next_output(reader: &PipeReader, ended: &mut Ended) -> Option<Bytes> {
    let over = ended.borrow().is_some();
    let bytes = if over {
        reader.read_now(CHUNK)
    } else {
        match select(pin!(reader.read(CHUNK)), pin!(ended.wait_for(Option::is_some))).await {
            Either::Left((bytes, _)) => bytes,
            Either::Right(_) => reader.read_now(CHUNK),
        }
    };
    (!bytes.is_empty()).then_some(bytes)
}

/// How a process ended, or `None` if it did not within `timeout`; then its tree is ended.
pub(super) async fn end_within(
    machine: &Machine,
    pid: Pid,
    ended: &mut Ended,
    timeout: Option<Duration>,
) -> Option<ExitStatus> {
    let end = async { ended.wait_for(Option::is_some).await.ok().and_then(|status| *status) };
    let Some(timeout) = timeout else { return Some(end.await.unwrap_or(ExitStatus::Unknown)) };
    if let Ok(status) = tokio::time::timeout(timeout, end).await {
        return Some(status.unwrap_or(ExitStatus::Unknown));
    }
    machine.processes.kill_tree(pid, SIGKILL);
    None
}

/// Starts a process that handles can be got on.
pub(super) fn start_fed(
    machine: &Arc<Machine>,
    launch: Launch,
    ends: Ends,
    stdin: Option<PipeWriter>,
    timeout: Option<Duration>,
) -> Result<(Pid, Arc<Feed>, ProcessEvents), NotStarted> {
    let feed = Arc::new(Feed::default());
    *feed.stdin.lock().unwrap_or_else(PoisonError::into_inner) = stdin;
    let events = feed.listen();
    let Launched { pid, ended } = machine.launch(launch)?;
    machine.processes.set_feed(pid, feed.clone());
    // The task ends with the process, which ends with the sandbox.
    tokio::spawn(pump(machine.clone(), pid, feed.clone(), ends, ended, timeout));
    Ok((pid, feed, events))
}

async fn pump(
    machine: Arc<Machine>,
    pid: Pid,
    feed: Arc<Feed>,
    ends: Ends,
    ended: Ended,
    timeout: Option<Duration>,
) {
    let pass = |reader: PipeReader, wrap: fn(Bytes) -> ProcessEvent| {
        let (feed, mut ended) = (feed.clone(), ended.clone());
        async move {
            while let Some(bytes) = next_output(&reader, &mut ended).await {
                feed.tell(|| Ok(wrap(bytes.clone()))).await;
            }
            reader
        }
    };
    let output = join(pass(ends.stdout, ProcessEvent::Stdout), pass(ends.stderr, ProcessEvent::Stderr));
    let mut waiting = ended.clone();
    let (status, (stdout, stderr)) = join(end_within(&machine, pid, &mut waiting, timeout), output).await;
    // What was left behind on purpose may go on writing.
    stdout.discard();
    stderr.discard();
    feed.close_stdin();
    feed.tell(|| match status {
        Some(status) => Ok(ProcessEvent::Exit(ProcessExit { status, cause: None })),
        None => Err(timed_out("spawn", timeout.unwrap_or_default())),
    })
    .await;
    feed.listeners.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// The error of a command that took too long.
pub(super) fn timed_out(operation: &'static str, timeout: Duration) -> Error {
    Error::new(
        ErrorKind::Timeout,
        operation,
        format!("the command took longer than {timeout:?} and was ended"),
    )
    .with_backend(BACKEND)
}

impl Feed {
    /// What the process says from now on.
    pub(super) fn listen(&self) -> ProcessEvents {
        let (sender, events) = queue(MAX_EVENTS, || {
            Error::new(
                ErrorKind::LimitExceeded,
                "read events",
                format!("events were not read for {PATIENCE:?}, so the process went on without this reader"),
            )
        });
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(sender));
        events
    }

    async fn tell(&self, event: impl Fn() -> Result<ProcessEvent>) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for listener in listeners {
            if !listener.put(event(), PATIENCE).await {
                let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
                listeners.retain(|other| !Arc::ptr_eq(other, &listener));
            }
        }
    }

    pub(super) fn stdin(&self) -> Option<PipeWriter> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn close_stdin(&self) {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The error for a program that can't be started.
pub(super) fn not_started(operation: &'static str, command: &Command, why: NotStarted) -> Error {
    let program = command.program().to_string_lossy().into_owned();
    match why {
        NotStarted::NotFound => Error::not_found(operation, format!("program `{program}`")),
        NotStarted::NotExecutable => {
            Error::new(ErrorKind::PermissionDenied, operation, format!("`{program}` may not be executed"))
        }
    }
    .with_backend(BACKEND)
}
