use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use futures::Stream;
use sandbar_core::{
    Command, EnvVars, Error, ErrorKind, ExitStatus, Process, ProcessControl, ProcessEvent as Event,
    ProcessEvents, ProcessExit, Processes, PtySize, Sandbox, Signal, SpawnOptions, StdinMode,
};
use sandbar_wire::envd::Signal as WireSignal;
use sandbar_wire::envd::{
    Channel, Code, Empty, EndEvent, ListResponse, ProcessConfig, ProcessEvent, ProcessInfo, ProcessInput,
    ProcessSelector, Pty, RpcError, SelectRequest, SendInputRequest, SendSignalRequest, StartRequest,
    StreamInput, UpdateRequest, causes,
};
use tokio::time::timeout;

use super::call::{Call, ended, failed, path, stream};
use super::unimplemented;

/// Serves `process.Process`.
pub(super) async fn serve(sandbox: Arc<dyn Sandbox>, method: &str, call: Call) -> Response {
    let is_stream = matches!(method, "Start" | "Connect");
    let Some(part) = sandbox.processes() else {
        let error = unimplemented("running processes");
        return if is_stream { ended(Some(&error)) } else { call.answer::<Empty>(Err(error)) };
    };
    match method {
        "Start" => events(start(part, &call).await, call.keepalive),
        "Connect" => {
            let process = async { attach(part, &call.message::<SelectRequest>()?.process).await };
            events(process.await, call.keepalive)
        }
        "List" => call.answer(list(part).await),
        "SendSignal" => call.answer(signal(part, &call).await),
        "SendInput" => {
            let sent = async {
                let request: SendInputRequest = call.message()?;
                let control = attach(part, &request.process).await?.control;
                write(&*control, request.input).await
            };
            call.answer(sent.await)
        }
        "StreamInput" => call.answer(stream_input(part, &call).await),
        "CloseStdin" => {
            let closed = async {
                let control = attach(part, &call.message::<SelectRequest>()?.process).await?.control;
                control.close_stdin().await.map(|()| Empty {}).map_err(|e| failed(&e))
            };
            call.answer(closed.await)
        }
        "Update" => call.answer(resize(part, &call).await),
        _ => call.answer::<Empty>(Err(unimplemented(&format!("`{method}`")))),
    }
}

async fn start(part: &dyn Processes, call: &Call) -> Result<Process, RpcError> {
    let request: StartRequest = call.message()?;
    let ProcessConfig { cmd, args, envs, cwd } = request.process;
    let mut env = EnvVars::new();
    for (name, value) in &envs {
        env.insert(name, value).map_err(|e| failed(&e))?;
    }
    let user = call.user.clone();
    let options = SpawnOptions {
        cwd: cwd.filter(|cwd| !cwd.is_empty()).map(|cwd| path(&cwd, user.as_ref())).transpose()?,
        env,
        user,
        timeout: call.timeout,
        // Absent means yes: so do clients behave that are older than the field.
        stdin: if request.stdin.unwrap_or(true) { StdinMode::Open } else { StdinMode::Null },
        pty: request.pty.map(size).transpose()?,
        tag: request.tag,
    };
    let started = part.spawn(&Command::new(cmd).args(args), options).await;
    started.map_err(|error| match error.kind() {
        // Of a program that is not there, too: it is the request that is wrong.
        ErrorKind::NotFound | ErrorKind::PermissionDenied => {
            RpcError::new(Code::InvalidArgument, error.message())
        }
        _ => failed(&error),
    })
}

fn size(pty: Pty) -> Result<PtySize, RpcError> {
    let size = pty.size.unwrap_or_default();
    let narrow = |count: u32| {
        u16::try_from(count).map_err(|_| {
            RpcError::new(Code::InvalidArgument, format!("terminal size {count} is above {}", u16::MAX))
        })
    };
    Ok(PtySize { cols: narrow(size.cols)?, rows: narrow(size.rows)? })
}

async fn attach(part: &dyn Processes, selector: &ProcessSelector) -> Result<Process, RpcError> {
    let pid = pid(part, selector).await?;
    part.attach(pid).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => RpcError::new(Code::NotFound, format!("process with pid {pid} not found")),
        _ => failed(&error),
    })
}

async fn pid(part: &dyn Processes, selector: &ProcessSelector) -> Result<u32, RpcError> {
    match selector {
        ProcessSelector { pid: Some(pid), .. } => Ok(*pid),
        ProcessSelector { tag: Some(tag), .. } => {
            let all = part.list().await.map_err(|e| failed(&e))?;
            let found = all.iter().find(|process| process.tag.as_ref() == Some(tag));
            found
                .map(|process| process.pid)
                .ok_or_else(|| RpcError::new(Code::NotFound, format!("process with tag {tag} not found")))
        }
        _ => Err(RpcError::new(Code::InvalidArgument, "no process is named: expected pid or tag")),
    }
}

async fn list(part: &dyn Processes) -> Result<ListResponse, RpcError> {
    let all = part.list().await.map_err(|e| failed(&e))?;
    let info = |process: sandbar_core::ProcessInfo| {
        let mut argv = process.argv.into_iter();
        let cmd = argv.next().unwrap_or_default();
        let config =
            ProcessConfig { cmd, args: argv.collect(), cwd: process.cwd, ..ProcessConfig::default() };
        ProcessInfo { config, pid: process.pid, tag: process.tag }
    };
    Ok(ListResponse { processes: all.into_iter().map(info).collect() })
}

async fn signal(part: &dyn Processes, call: &Call) -> Result<Empty, RpcError> {
    let request: SendSignalRequest = call.message()?;
    if !request.signal.is_standard() {
        return Err(RpcError::new(Code::Unimplemented, format!("signal {} can't be sent", request.signal)));
    }
    let pid = pid(part, &request.process).await?;
    match part.signal(pid, Signal(request.signal.number())).await {
        Ok(true) => Ok(Empty {}),
        Ok(false) => Err(RpcError::new(Code::NotFound, format!("process with pid {pid} not found"))),
        Err(error) => Err(failed(&error)),
    }
}

async fn write(control: &dyn ProcessControl, input: ProcessInput) -> Result<Empty, RpcError> {
    let bytes: Bytes = match input {
        ProcessInput { stdin: Some(bytes), pty: None } | ProcessInput { stdin: None, pty: Some(bytes) } => {
            bytes
        }
        _ => return Err(RpcError::new(Code::InvalidArgument, "expected either stdin or pty")),
    };
    control.write(bytes).await.map(|()| Empty {}).map_err(|error| match error.kind() {
        ErrorKind::Conflict => {
            RpcError::new(Code::Internal, "error writing to stdin: stdin not enabled or closed")
        }
        _ => failed(&error),
    })
}

async fn stream_input(part: &dyn Processes, call: &Call) -> Result<Empty, RpcError> {
    let mut control: Option<Arc<dyn ProcessControl>> = None;
    for message in call.messages()? {
        match message {
            StreamInput::Start(select) => control = Some(attach(part, &select.process).await?.control),
            StreamInput::Data(input) => {
                let Some(control) = &control else {
                    let text = "the first message names no process";
                    return Err(RpcError::new(Code::InvalidArgument, text));
                };
                write(&**control, input).await?;
            }
            StreamInput::Keepalive | StreamInput::Unknown => {}
        }
    }
    Ok(Empty {})
}

async fn resize(part: &dyn Processes, call: &Call) -> Result<Empty, RpcError> {
    let request: UpdateRequest = call.message()?;
    let control = attach(part, &request.process).await?.control;
    let Some(pty) = request.pty else { return Ok(Empty {}) };
    control.resize(size(pty)?).await.map(|()| Empty {}).map_err(|error| match error.kind() {
        ErrorKind::Conflict => RpcError::new(Code::Internal, "tty not assigned to process"),
        _ => failed(&error),
    })
}

/// What a process says, from now on.
fn events(process: Result<Process, RpcError>, keepalive: Duration) -> Response {
    match process {
        Ok(process) => stream(told(process, keepalive)),
        Err(error) => ended(Some(&error)),
    }
}

enum Next {
    Start(u32, ProcessEvents),
    Events(ProcessEvents),
    End,
}

fn told(process: Process, keepalive: Duration) -> impl Stream<Item = Result<ProcessEvent, RpcError>> {
    use futures::StreamExt as _;
    futures::stream::unfold(Next::Start(process.pid, process.events), move |next| async move {
        let mut events = match next {
            Next::Start(pid, events) => return Some((Ok(ProcessEvent::Start { pid }), Next::Events(events))),
            Next::Events(events) => events,
            Next::End => return None,
        };
        let Ok(event) = timeout(keepalive, events.next()).await else {
            return Some((Ok(ProcessEvent::Keepalive), Next::Events(events)));
        };
        let data = |channel, bytes| Ok(ProcessEvent::Data { channel, bytes });
        match event? {
            Ok(Event::Stdout(bytes)) => Some((data(Channel::Stdout, bytes), Next::Events(events))),
            Ok(Event::Stderr(bytes)) => Some((data(Channel::Stderr, bytes), Next::Events(events))),
            Ok(Event::Terminal(bytes)) => Some((data(Channel::Pty, bytes), Next::Events(events))),
            Ok(Event::Exit(exit)) => Some((Ok(ProcessEvent::End(end(exit))), Next::End)),
            Ok(_) => Some((Ok(ProcessEvent::Keepalive), Next::Events(events))),
            Err(error) => Some((Err(lost(&error)), Next::End)),
        }
    })
}

fn lost(error: &Error) -> RpcError {
    match error.kind() {
        ErrorKind::Timeout => RpcError::new(Code::DeadlineExceeded, error.message()),
        _ => failed(error),
    }
}

fn end(exit: ProcessExit) -> EndEvent {
    match exit.status {
        ExitStatus::Code(code) => {
            let status = format!("exit status {code}");
            let error = (code != 0).then(|| status.clone());
            EndEvent { exit_code: code, exited: true, status, error, ..EndEvent::default() }
        }
        ExitStatus::Signal(number) => {
            let status = match WireSignal::description(number) {
                "signal" => format!("signal: {number}"),
                name => format!("signal: {name}"),
            };
            let error = Some(status.clone());
            EndEvent {
                exit_code: -1,
                status,
                error,
                signal: u32::try_from(number).ok(),
                ..EndEvent::default()
            }
        }
        // Never taken for success.
        ExitStatus::Unknown => EndEvent {
            exit_code: exit.status.to_code(),
            status: "unknown".to_owned(),
            error: Some("how it ended is unknown".to_owned()),
            cause: Some(causes::UNKNOWN.to_owned()),
            ..EndEvent::default()
        },
    }
}
