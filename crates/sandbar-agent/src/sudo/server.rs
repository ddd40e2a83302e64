use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, sockopt,
};
use sandbar_engine::process::{Event, Reach, Spawn, Stage, Stdio, Tree};
use sandbar_wire::envd::Signal;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::message::{Action, Answer, DESCRIPTORS, Forward, MAX_PACKET, MAX_REQUEST, Request};
use crate::config::Sudo;
use crate::control::Socket;
use crate::descriptor;
use crate::log::log;
use crate::processes::{Command, end_orphans, next_event};
use crate::state::State;
use crate::users::User;

/// Waiting connections.
const BACKLOG: i32 = 64;
/// Most `sudo` commands at the same time; further ones wait.
const MAX_CONNECTIONS: usize = 256;
/// How long a connection may take to ask.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// How long executing a program may take.
const EXEC_LIMIT: Duration = Duration::from_secs(30);
/// Pause after a failed accept, which is a lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The sandbox's ordinary user, and its root.
const ALLOWED_UIDS: [u32; 2] = [1000, 0];

/// Serves `sudo` until the agent ends. Without its socket everything else works, so that a failure is only logged.
pub(crate) async fn serve(state: Rc<State>) {
    let Some(path) = state.config.sudo_socket.clone() else { return };
    let socket = match open(&path) {
        Ok(socket) => socket,
        Err(error) => {
            log(format_args!("sudo is not available: listen on `{}`: {error}", path.display()));
            return;
        }
    };
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match socket.accept().await {
            Ok(connection) => {
                let state = state.clone();
                tokio::task::spawn_local(async move {
                    converse(&state, &connection).await;
                    drop(place);
                });
            }
            Err(error) => {
                log(format_args!("accept a connection of sudo: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn open(path: &Path) -> io::Result<Socket> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Whoever may ask is decided by the credentials of the connection.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    listen(&socket, BACKLOG)?;
    Socket::new(socket)
}

async fn converse(state: &Rc<State>, connection: &Socket) {
    if let Err(text) = handle(state, connection).await {
        answer(connection, &Answer::Refused(text)).await;
    }
}

async fn answer(connection: &Socket, answer: &Answer) {
    let packet = serde_json::to_vec(answer).unwrap_or_default();
    // A program that left needs no answer.
    let _ = connection.send(&packet, &[]).await;
}

async fn handle(state: &Rc<State>, connection: &Socket) -> Result<(), String> {
    let peer = sockopt::socket_peercred(connection.as_fd())
        .map_err(|error| format!("look at the caller: {error}"))?;
    let uid = peer.uid.as_raw();
    if !ALLOWED_UIDS.contains(&uid) {
        return Err(format!("user id {uid} may not use sudo"));
    }
    let received = timeout(REQUEST_LIMIT, connection.receive(MAX_REQUEST, DESCRIPTORS)).await;
    let (packet, descriptors) = match received {
        Ok(Ok(Some(received))) => received,
        Ok(Ok(None)) => return Ok(()),
        Ok(Err(error)) => return Err(format!("read the request: {error}")),
        Err(_) => return Err("no request came in time".to_owned()),
    };
    for descriptor in &descriptors {
        // Closing the last descriptor of such a socket would wait for its other end, for as long as whoever passed it
        // on has set. It is an error for what is no socket.
        let _ = sockopt::set_socket_linger(descriptor, None);
    }
    let request: Request =
        serde_json::from_slice(&packet).map_err(|error| format!("read the request: {error}"))?;
    if let Sudo::Denied { reason } = &state.config.sudo {
        return Err(reason.clone());
    }
    let user = state.user(Some(&request.user)).map_err(|error| error.message)?;
    if request.action == Action::Check {
        answer(connection, &Answer::Allowed).await;
        return Ok(());
    }
    let descriptors: [OwnedFd; DESCRIPTORS] =
        descriptors.try_into().map_err(|_| format!("a request carries {DESCRIPTORS} descriptors"))?;
    let spawn = prepare(state, &user, &request, descriptors, uid)?;
    let child = spawn.start().map_err(|error| error.to_string())?;
    let tree = Arc::new(child.tree);
    state.registry.insert_tree(&tree);
    let report = descriptor::watch(child.report).map_err(|error| format!("follow the command: {error}"))?;
    let result = run(state, connection, &tree, &report, &request).await;
    let state = state.clone();
    tokio::task::spawn_local(async move {
        while !matches!(next_event(&report).await, Ok(Event::Gone) | Err(_)) {}
        state.registry.remove_tree(&tree);
    });
    result
}

/// Follows the command to its end. Where the program that asked for it vanishes, so does the command: a kill of what
/// surrounds it means it too.
async fn run(
    state: &State,
    connection: &Socket,
    tree: &Arc<Tree>,
    report: &AsyncFd<OwnedFd>,
    request: &Request,
) -> Result<(), String> {
    let kill = || {
        let _ = tree.signal(Signal::KILL.number(), Reach::Everything);
    };
    match timeout(EXEC_LIMIT, next_event(report)).await {
        Ok(Ok(Event::Started(pid))) => tree.set_root(pid),
        Ok(Ok(Event::Failed(failure))) => {
            let name = match failure.stage {
                Stage::Chdir => &request.cwd,
                _ => request.argv.first().unwrap_or(&request.user),
            };
            return Err(match (failure.stage, failure.reason().as_str()) {
                (Stage::Exec, "no such file or directory") => format!("{name}: command not found"),
                (_, reason) => format!("{name}: {reason}"),
            });
        }
        other => {
            kill();
            return Err(format!("the command could not be started: {other:?}"));
        }
    }
    answer(connection, &Answer::Started).await;
    loop {
        tokio::select! {
            biased;
            event = next_event(report) => match event {
                Ok(Event::Exited(status)) => {
                    let status = ExitStatus::from_raw(status);
                    let end = match (status.code(), status.signal()) {
                        (Some(code), _) => Answer::Exited(code),
                        (None, signal) => Answer::Signaled(signal.unwrap_or(Signal::KILL.number())),
                    };
                    answer(connection, &end).await;
                    return Ok(());
                }
                Ok(Event::Started(_) | Event::Failed(_)) => {}
                Ok(Event::Gone) | Err(_) => {
                    end_orphans(state, tree);
                    return Err("the command's outcome is unknown".to_owned());
                }
            },
            packet = connection.receive(MAX_PACKET, 0) => {
                let Ok(Some((packet, _))) = packet else {
                    kill();
                    return Ok(());
                };
                if let Ok(Forward { signal }) = serde_json::from_slice(&packet)
                    && Signal::new(signal).is_standard()
                {
                    let _ = tree.signal(signal, Reach::Session);
                }
            }
        }
    }
}

fn prepare(
    state: &State,
    user: &User,
    request: &Request,
    descriptors: [OwnedFd; DESCRIPTORS],
    caller: u32,
) -> Result<Spawn, String> {
    let mut env = request.env.clone();
    env.insert("SUDO_UID".to_owned(), caller.to_string());
    env.insert("SUDO_COMMAND".to_owned(), request.argv.join(" "));
    env.insert("SHELL".to_owned(), user.shell.clone());
    let shell_args = match request.argv.as_slice() {
        [] => Vec::new(),
        words => vec!["-c".to_owned(), words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")],
    };
    let (program, args, cwd) = match request.action {
        Action::Run | Action::Check => {
            let (program, args) = request.argv.split_first().ok_or("no command was given")?;
            (program.as_str(), args, request.cwd.as_str())
        }
        Action::Shell => (user.shell.as_str(), shell_args.as_slice(), request.cwd.as_str()),
        Action::Login => (user.shell.as_str(), shell_args.as_slice(), user.home.as_str()),
    };
    let command = Command { program, args, env: &env, cwd: Some(cwd), stdio: Stdio::Given(descriptors) };
    let mut spawn = command.prepare(state, user).map_err(|error| error.message)?;
    if request.action == Action::Login {
        let name = user.shell.rsplit('/').next().unwrap_or_default();
        spawn.argv[0] = std::ffi::CString::new(format!("-{name}")).map_err(|error| error.to_string())?;
    }
    Ok(spawn)
}

/// One word for a shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
