use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sandbar_engine::process::{Child, Event, Failure, Spawn, Stage, Stdin, Stdio};
use sandbar_wire::envd::{Channel, Code, ProcessInfo, PtySize, RpcError, StartRequest, reason};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::pump::pump;
use super::supervise::supervise;
use super::{Command, Process, Queue};
use crate::descriptor;
use crate::state::State;
use crate::users::User;

/// How long executing a program may take; only a broken disk takes that long.
const EXEC_LIMIT: Duration = Duration::from_secs(30);

/// Starts a command and subscribes the caller, who is the first reader.
///
/// To be run as a task of its own: a command that was started has to be registered, whether or not the one who asked
/// still waits.
pub(crate) async fn start(
    state: Rc<State>,
    request: StartRequest,
    user: User,
    deadline: Option<Instant>,
) -> Result<Rc<Queue>, RpcError> {
    let spawn = spawn(&state, &request, &user)?;
    let child = spawn.start().map_err(|error| {
        let code = if error.is_exhaustion() { Code::ResourceExhausted } else { Code::Internal };
        if error.is_process_limit() {
            process_limit(&request)
        } else {
            RpcError::new(code, error.to_string())
        }
    })?;
    let Child { tree, report, stdin, stdout, stderr, pty } = child;
    let tree = Arc::new(tree);
    let internal = |error: io::Error| RpcError::new(Code::Internal, format!("start a process: {error}"));
    let report = descriptor::watch(report).map_err(internal)?;
    let pid = started(&state, &report, &tree, &request).await?;
    let wrap = |end: Option<OwnedFd>| end.map(descriptor::watch).transpose().map_err(internal);
    let (stdin, stdout, stderr, pty) = (wrap(stdin)?, wrap(stdout)?, wrap(stderr)?, wrap(pty)?.map(Rc::new));
    let StartRequest { process: config, tag, .. } = request;
    let info = ProcessInfo { config, pid, tag };
    let process = Rc::new(Process::new(info, tree, stdin, pty));
    let reader = process.subscribe();
    let mut pumps = Vec::new();
    for (channel, source) in [(Channel::Stdout, stdout), (Channel::Stderr, stderr)] {
        if let Some(source) = source {
            let (done, drained) = oneshot::channel();
            pumps.push(drained);
            tokio::task::spawn_local(pump(process.clone(), channel, Rc::new(source), done));
        }
    }
    if let Some(pty) = &process.pty {
        let (done, drained) = oneshot::channel();
        pumps.push(drained);
        tokio::task::spawn_local(pump(process.clone(), Channel::Pty, pty.clone(), done));
    }
    state.registry.insert(process.clone());
    tokio::task::spawn_local(supervise(
        state,
        process,
        report,
        pumps,
        deadline.map(|at| (at, reader.clone())),
    ));
    Ok(reader)
}

fn spawn(state: &State, request: &StartRequest, user: &User) -> Result<Spawn, RpcError> {
    let process = &request.process;
    let stdio = match &request.pty {
        Some(pty) => {
            let PtySize { cols, rows } = pty.size.unwrap_or_default();
            Stdio::Pty { cols: character_count(cols)?, rows: character_count(rows)? }
        }
        // Absent means yes: so do clients behave that are older than the field.
        None if request.stdin.unwrap_or(true) => Stdio::Pipes { stdin: Stdin::Pipe },
        None => Stdio::Pipes { stdin: Stdin::Null },
    };
    let (program, args) = (process.cmd.as_str(), process.args.as_slice());
    Command { program, args, env: &process.envs, cwd: process.cwd.as_deref(), stdio }.prepare(state, user)
}

/// A terminal's size in one direction.
pub(super) fn character_count(count: u32) -> Result<u16, RpcError> {
    u16::try_from(count).map_err(|_| {
        RpcError::new(Code::InvalidArgument, format!("terminal size {count} is above {}", u16::MAX))
    })
}

/// Waits until the program executes. The frame on failure says what went wrong in words and by a reason.
async fn started(
    state: &State,
    report: &AsyncFd<OwnedFd>,
    tree: &Arc<sandbar_engine::process::Tree>,
    request: &StartRequest,
) -> Result<u32, RpcError> {
    state.registry.insert_tree(tree);
    let event = timeout(EXEC_LIMIT, next_event(report)).await;
    let result = match event {
        Ok(Ok(Event::Started(pid))) => {
            tree.set_root(pid);
            return Ok(pid.cast_unsigned());
        }
        Ok(Ok(Event::Failed(failure))) => Err(failed(failure, request)),
        Ok(Ok(_)) => Err(RpcError::new(Code::Internal, "start a process: it was killed before it could run")),
        Ok(Err(error)) => Err(RpcError::new(Code::Internal, format!("start a process: {error}"))),
        Err(_) => Err(RpcError::new(Code::Internal, "start a process: the program did not execute in time")),
    };
    let _ =
        tree.signal(sandbar_wire::envd::Signal::KILL.number(), sandbar_engine::process::Reach::Everything);
    state.registry.remove_tree(tree);
    result
}

fn failed(failure: Failure, request: &StartRequest) -> RpcError {
    let text = failure.reason();
    let process = &request.process;
    match failure.stage {
        // Whichever step it was: the second of two processes, or one of too many of the user's.
        _ if failure.errno == rustix::io::Errno::AGAIN.raw_os_error() => process_limit(request),
        _ if failure.errno == rustix::io::Errno::NOMEM.raw_os_error() => {
            RpcError::new(Code::ResourceExhausted, format!("start `{}`: {text}", process.cmd))
        }
        Stage::Exec => {
            let reason = match io::Error::from_raw_os_error(failure.errno).kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => reason::PROGRAM_NOT_FOUND,
                _ => reason::PROGRAM_NOT_EXECUTABLE,
            };
            let text = format!("start `{}`: {text}", process.cmd);
            RpcError::new(Code::InvalidArgument, text).with_reason(reason)
        }
        Stage::Chdir => {
            let cwd = process.cwd.as_deref().unwrap_or("~");
            RpcError::new(Code::InvalidArgument, format!("cwd '{cwd}': {text}")).with_reason(reason::BAD_CWD)
        }
        stage => RpcError::new(Code::Internal, format!("start `{}`: {stage:?}: {text}", process.cmd)),
    }
}

fn process_limit(request: &StartRequest) -> RpcError {
    let text = format!(
        "start `{}`: no process can be made: the sandbox's limit on processes is reached",
        request.process.cmd
    );
    RpcError::new(Code::ResourceExhausted, text).with_reason(reason::PROCESS_LIMIT)
}

/// The next event of a stub.
pub(crate) async fn next_event(report: &AsyncFd<OwnedFd>) -> io::Result<Event> {
    loop {
        let mut ready = report.readable().await?;
        match sandbar_engine::process::read_event(report.get_ref())? {
            Some(event) => return Ok(event),
            None => ready.clear_ready(),
        }
    }
}
