//! The `sudo` program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use sandbar_engine::process::SignalQueue;

use super::message::{Action, Answer, DESCRIPTORS, Forward, MAX_PACKET, MAX_REQUEST, Request};
use super::parse::{Invocation, Mode, USAGE, parse};
use crate::control::{receive_now, send_now};

/// Signals that are passed on to the command: HUP, INT, QUIT, USR1, USR2, ALRM, TERM, CONT, WINCH.
const FORWARDED: [i32; 9] = [1, 2, 3, 10, 12, 14, 15, 18, 28];
/// What keeps its value without `-E`, apart from `LC_*`.
const KEPT: [&str; 7] = ["TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ", "DISPLAY", "SSH_AUTH_SOCK"];
/// Exit code for whatever is wrong on our side, as the original's.
const FAILED: i32 = 1;
/// Added to the number of the signal that ended the command.
const SIGNAL_BASE: i32 = 128;

/// Runs the program against the agent's socket: `args` without its own name. Returns the exit code.
pub fn run(socket: &Path, args: Vec<OsString>) -> i32 {
    match invoke(socket, args) {
        Ok(code) => code,
        Err(text) => {
            eprintln!("sudo: {text}");
            FAILED
        }
    }
}

fn invoke(socket: &Path, args: Vec<OsString>) -> Result<i32, String> {
    let args: Result<Vec<String>, _> = args.into_iter().map(OsString::into_string).collect();
    let args = args.map_err(|arg| format!("argument `{}` is not UTF-8", arg.display()))?;
    let invocation = parse(args).map_err(|error| format!("{error}\n{USAGE}"))?;
    let action = match invocation.mode {
        Mode::Nothing => return Ok(0),
        Mode::Help => {
            println!("{USAGE}");
            return Ok(0);
        }
        Mode::Version => {
            println!("sudo of Sandbar {}", env!("CARGO_PKG_VERSION"));
            return Ok(0);
        }
        Mode::List | Mode::Validate => Action::Check,
        Mode::Run => Action::Run,
        Mode::Shell => Action::Shell,
        Mode::Login => Action::Login,
    };
    // Blocked before the command exists, so that none is lost.
    let signals = SignalQueue::new(&FORWARDED).map_err(|error| format!("queue signals: {error}"))?;
    let connection =
        dial(socket).map_err(|error| format!("the sandbox's agent can't be reached: {error}"))?;
    let is_list = invocation.mode == Mode::List;
    let packet = serde_json::to_vec(&request(action, invocation)).map_err(|error| error.to_string())?;
    if packet.len() > MAX_REQUEST {
        return Err(format!("arguments and environment are above {MAX_REQUEST} bytes"));
    }
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let descriptors: [BorrowedFd<'_>; DESCRIPTORS] = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    match send_now(connection.as_fd(), &packet, &descriptors) {
        // Refused before the request was read: the answer says why.
        Err(error) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            return Err(format!("ask the agent: {error}"));
        }
        _ => {}
    }
    follow(&connection, &signals, is_list)
}

fn dial(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn request(action: Action, invocation: Invocation) -> Request {
    let kept = |name: &str| invocation.preserve_env || KEPT.contains(&name) || name.starts_with("LC_");
    let mut env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| kept(name))
        .collect();
    // Whose they are is decided by the target user.
    for name in ["HOME", "USER", "LOGNAME", "SHELL"] {
        env.remove(name);
    }
    env.extend(invocation.env);
    let cwd =
        std::env::current_dir().map_or_else(|_| "/".to_owned(), |cwd| cwd.to_string_lossy().into_owned());
    Request { user: invocation.user, action, argv: invocation.command, env, cwd }
}

/// Waits for the command's end and passes signals on.
fn follow(connection: &OwnedFd, signals: &SignalQueue, is_list: bool) -> Result<i32, String> {
    loop {
        let mut ready = [PollFd::new(connection, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("wait for the agent: {error}")),
        }
        let is_answered = !ready[0].revents().is_empty();
        while let Ok(Some(signal)) = signals.take() {
            let forward = serde_json::to_vec(&Forward { signal }).unwrap_or_default();
            let _ = send_now(connection.as_fd(), &forward, &[]);
        }
        if !is_answered {
            continue;
        }
        let packet = match receive_now(connection.as_fd(), MAX_PACKET, 0) {
            // Refused before the request was read: the kernel tells that once, and then gives the answer.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                receive_now(connection.as_fd(), MAX_PACKET, 0)
            }
            other => other,
        };
        let packet = packet.map_err(|error| format!("ask the agent: {error}"))?;
        let Some((packet, _)) = packet else { return Err("the agent closed the connection".to_owned()) };
        match serde_json::from_slice(&packet).map_err(|error| format!("answer of the agent: {error}"))? {
            Answer::Started => {}
            Answer::Allowed if is_list => {
                println!("This user may run the following commands:\n    (ALL : ALL) NOPASSWD: ALL");
                return Ok(0);
            }
            Answer::Allowed => return Ok(0),
            Answer::Refused(text) => return Err(text),
            Answer::Exited(code) => return Ok(code),
            Answer::Signaled(signal) => return Ok(SIGNAL_BASE + signal),
        }
    }
}
