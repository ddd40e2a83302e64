use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use sandbar_core::{
    Command, EnvVars, ErrorKind, ExitStatus, FilesExt, Process, ProcessEvent, ProcessEvents, Processes,
    PtySize, Sandbox, SandboxExt, Signal, SpawnOptions, StdinMode, UserName,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, PATIENCE, at, ensure, ensure_eq, eventually, expect_error, fail, part, sh};
use crate::harness::Feature;

group!("processes";
    output_comes_as_events, streams_are_kept_apart, exit_is_the_last_event, all_output_comes_before_the_exit,
    bytes_arrive_unchanged, output_comes_while_it_runs, exit_code_is_data, signal_is_data,
    missing_program_is_not_found, not_executable_is_permission_denied, missing_folder_is_invalid,
    missing_user_is_invalid, empty_command_is_invalid, folder_and_env_are_honoured, stdin_is_at_its_end_by_default,
    open_stdin_is_written_to, closing_stdin_ends_it, closing_stdin_twice_is_harmless,
    write_without_open_stdin_is_a_conflict, write_after_close_is_a_conflict, large_stdin_arrives,
    signal_ends_it, signal_ends_its_tree, signal_to_none_is_false, signal_to_a_finished_one_is_false,
    invalid_signal_is_refused, listed_while_it_runs, list_shows_what_was_asked, finished_is_not_listed,
    attach_gives_what_comes, attach_can_talk, attach_to_none_is_not_found, two_handles_hear_the_same,
    dropping_the_handle_does_not_end_it, timeout_is_an_error, timeout_ends_the_tree,
    resize_without_terminal_is_a_conflict, terminal_is_real_or_refused, terminal_interrupts,
    sleeping_sandbox_is_a_conflict,
);

/// What a process said until its end.
#[derive(Debug, Default)]
struct Said {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    terminal: Vec<u8>,
    status: Option<ExitStatus>,
    /// Events after the exit.
    late: usize,
}

async fn read_all(mut events: ProcessEvents) -> Checked<Said> {
    let mut said = Said::default();
    let read = async {
        while let Some(event) = events.next().await {
            said.late += usize::from(said.status.is_some());
            match event? {
                ProcessEvent::Stdout(bytes) => said.stdout.extend_from_slice(&bytes),
                ProcessEvent::Stderr(bytes) => said.stderr.extend_from_slice(&bytes),
                ProcessEvent::Terminal(bytes) => said.terminal.extend_from_slice(&bytes),
                ProcessEvent::Exit(exit) => said.status = Some(exit.status),
                _ => {}
            }
        }
        Checked::Ok(())
    };
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(read) => read?,
        Err(_) => return fail(format!("the events did not end within {PATIENCE:?}: {said:?}")),
    }
    ensure!(said.status.is_some(), "the events ended without an exit");
    Ok(said)
}

/// The shared sandbox, if it has processes.
pub(super) async fn with_processes(bed: &Bed<'_>) -> Checked<Arc<dyn Sandbox>> {
    let sandbox = bed.shared().await?;
    part(sandbox.processes(), &*sandbox, "processes")?;
    Ok(sandbox)
}

pub(super) async fn spawn(sandbox: &dyn Sandbox, script: &str, options: SpawnOptions) -> Checked<Process> {
    Ok(sandbox.require_processes()?.spawn(&Command::shell(script), options).await?)
}

async fn said(bed: &Bed<'_>, script: &str, options: SpawnOptions) -> Checked<Said> {
    let sandbox = with_processes(bed).await?;
    read_all(spawn(&*sandbox, script, options).await?.events).await
}

/// Reads events until standard output holds `text`.
async fn wait_for(process: &mut Process, text: &str) -> Checked {
    let mut so_far = Vec::new();
    let read = async {
        while let Some(event) = process.events.next().await {
            if let ProcessEvent::Stdout(bytes) = event? {
                so_far.extend_from_slice(&bytes);
                if String::from_utf8_lossy(&so_far).contains(text) {
                    return Checked::Ok(());
                }
            }
        }
        fail(format!("the process ended without saying `{text}`"))
    };
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(read) => read,
        Err(_) => fail(format!("the process did not say `{text}` within {PATIENCE:?}")),
    }
}

async fn output_comes_as_events(bed: &Bed<'_>) -> Checked {
    let said = said(bed, "echo hello", SpawnOptions::new()).await?;
    ensure_eq!(said.stdout, b"hello\n", "standard output");
    ensure_eq!(said.status, Some(ExitStatus::Code(0)), "status");
    Ok(())
}

async fn streams_are_kept_apart(bed: &Bed<'_>) -> Checked {
    let said = said(bed, "echo out; echo err >&2", SpawnOptions::new()).await?;
    ensure_eq!(said.stdout, b"out\n", "standard output");
    ensure_eq!(said.stderr, b"err\n", "standard error");
    Ok(())
}

async fn exit_is_the_last_event(bed: &Bed<'_>) -> Checked {
    let said = said(bed, "echo x; echo y >&2; exit 1", SpawnOptions::new()).await?;
    ensure_eq!(said.late, 0, "events after the exit");
    Ok(())
}

async fn all_output_comes_before_the_exit(bed: &Bed<'_>) -> Checked {
    let script = "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2";
    let said = said(bed, script, SpawnOptions::new()).await?;
    ensure_eq!(said.stdout.len(), 1_000_000, "bytes of standard output");
    ensure_eq!(said.stderr.len(), 1_000_000, "bytes of standard error");
    Ok(())
}

async fn bytes_arrive_unchanged(bed: &Bed<'_>) -> Checked {
    let said = said(bed, "printf '\\000\\377\\200\\012\\015'", SpawnOptions::new()).await?;
    ensure_eq!(said.stdout, b"\x00\xff\x80\n\r", "bytes");
    Ok(())
}

async fn output_comes_while_it_runs(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let mut process = spawn(&*sandbox, "echo early; sleep 600", SpawnOptions::new()).await?;
    wait_for(&mut process, "early").await?;
    process.control.signal(Signal::KILL).await?;
    Ok(())
}

async fn exit_code_is_data(bed: &Bed<'_>) -> Checked {
    let said = said(bed, "exit 42", SpawnOptions::new()).await?;
    ensure_eq!(said.status, Some(ExitStatus::Code(42)), "status");
    Ok(())
}

async fn signal_is_data(bed: &Bed<'_>) -> Checked {
    let said = said(bed, "kill -KILL $$; sleep 10", SpawnOptions::new()).await?;
    ensure_eq!(said.status, Some(ExitStatus::Signal(9)), "status");
    Ok(())
}

async fn refused(bed: &Bed<'_>, command: &Command, options: SpawnOptions, kind: ErrorKind) -> Checked {
    let sandbox = with_processes(bed).await?;
    let spawned = sandbox.require_processes()?.spawn(command, options).await;
    expect_error(spawned, &[kind], "the spawn").map(drop)
}

async fn missing_program_is_not_found(bed: &Bed<'_>) -> Checked {
    let command = Command::new("no-such-program-of-the-kit");
    refused(bed, &command, SpawnOptions::new(), ErrorKind::NotFound).await
}

async fn not_executable_is_permission_denied(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("plain")?;
    sandbox.files().write(&path, "#!/bin/sh\n".into()).await?;
    let command = Command::new(path.to_str().unwrap_or_default());
    refused(bed, &command, SpawnOptions::new(), ErrorKind::PermissionDenied).await
}

async fn missing_folder_is_invalid(bed: &Bed<'_>) -> Checked {
    let options = SpawnOptions::new().with_cwd(at("/no/such/folder")?);
    refused(bed, &Command::new("true"), options, ErrorKind::InvalidInput).await
}

async fn missing_user_is_invalid(bed: &Bed<'_>) -> Checked {
    let options = SpawnOptions::new().with_user(UserName::new("no-such-user")?);
    refused(bed, &Command::new("true"), options, ErrorKind::InvalidInput).await
}

async fn empty_command_is_invalid(bed: &Bed<'_>) -> Checked {
    refused(bed, &Command::new(""), SpawnOptions::new(), ErrorKind::InvalidInput).await
}

async fn folder_and_env_are_honoured(bed: &Bed<'_>) -> Checked {
    let env = EnvVars::new().with("KIT", "value")?;
    let options = SpawnOptions::new().with_cwd(at("/tmp")?).with_env(env);
    let said = said(bed, "pwd; echo $KIT", options).await?;
    ensure_eq!(String::from_utf8_lossy(&said.stdout), "/tmp\nvalue\n", "folder and variable");
    Ok(())
}

async fn stdin_is_at_its_end_by_default(bed: &Bed<'_>) -> Checked {
    let said = said(bed, "cat; echo end", SpawnOptions::new()).await?;
    ensure_eq!(said.stdout, b"end\n", "output");
    Ok(())
}

/// A process with open standard input.
pub(super) async fn open(sandbox: &dyn Sandbox, script: &str) -> Checked<Process> {
    spawn(sandbox, script, SpawnOptions::new().with_stdin(StdinMode::Open)).await
}

async fn open_stdin_is_written_to(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let mut process =
        open(&*sandbox, "read line; echo \"got $line\"; read line; echo \"then $line\"").await?;
    process.control.write(Bytes::from("one\n")).await?;
    wait_for(&mut process, "got one").await?;
    process.control.write(Bytes::from("two\n")).await?;
    wait_for(&mut process, "then two").await
}

async fn closing_stdin_ends_it(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = open(&*sandbox, "cat; echo end").await?;
    process.control.write(Bytes::from("text\n")).await?;
    process.control.close_stdin().await?;
    ensure_eq!(read_all(process.events).await?.stdout, b"text\nend\n", "output");
    Ok(())
}

async fn closing_stdin_twice_is_harmless(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = open(&*sandbox, "cat; sleep 0.2").await?;
    process.control.close_stdin().await?;
    process.control.close_stdin().await?;
    read_all(process.events).await.map(drop)
}

async fn write_without_open_stdin_is_a_conflict(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = spawn(&*sandbox, "sleep 600", SpawnOptions::new()).await?;
    let written = process.control.write(Bytes::from("x")).await;
    process.control.signal(Signal::KILL).await?;
    expect_error(written, &[ErrorKind::Conflict], "a write to no input").map(drop)
}

async fn write_after_close_is_a_conflict(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = open(&*sandbox, "cat; sleep 600").await?;
    process.control.close_stdin().await?;
    let written = process.control.write(Bytes::from("x")).await;
    process.control.signal(Signal::KILL).await?;
    expect_error(written, &[ErrorKind::Conflict], "a write to closed input").map(drop)
}

async fn large_stdin_arrives(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = open(&*sandbox, "wc -c").await?;
    for _ in 0..16 {
        process.control.write(Bytes::from(vec![b'x'; 65_536])).await?;
    }
    process.control.close_stdin().await?;
    let said = read_all(process.events).await?;
    ensure_eq!(String::from_utf8_lossy(&said.stdout).trim(), "1048576", "bytes counted");
    Ok(())
}

async fn signal_ends_it(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    for signal in [Signal::TERM, Signal::KILL] {
        let process = spawn(&*sandbox, "sleep 600", SpawnOptions::new()).await?;
        let there = sandbox.require_processes()?.signal(process.pid, signal).await?;
        ensure!(there, "a running process was said to be absent");
        let said = read_all(process.events).await?;
        ensure_eq!(said.status, Some(ExitStatus::Signal(signal.0)), "status");
    }
    Ok(())
}

async fn signal_ends_its_tree(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let mut process = spawn(&*sandbox, "sleep 600 & echo \"child $! \"; wait", SpawnOptions::new()).await?;
    let mut text = String::new();
    while !text.contains(" \n") {
        match tokio::time::timeout(PATIENCE, process.events.next()).await {
            Ok(Some(Ok(ProcessEvent::Stdout(bytes)))) => text.push_str(&String::from_utf8_lossy(&bytes)),
            other => return fail(format!("expected the child's number, got {other:?}")),
        }
    }
    let child = text.trim().trim_start_matches("child ").to_owned();
    process.control.signal(Signal::KILL).await?;
    let probe = format!("kill -0 {child} 2>/dev/null && echo alive || echo gone");
    eventually("the end of the child", || async {
        Ok(sh(&*sandbox, &probe).await?.stdout_lossy() == "gone\n")
    })
    .await
}

async fn signal_to_none_is_false(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let there = sandbox.require_processes()?.signal(4_000_000, Signal::TERM).await?;
    ensure!(!there, "a process that does not exist was said to be there");
    Ok(())
}

async fn signal_to_a_finished_one_is_false(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = spawn(&*sandbox, "true", SpawnOptions::new()).await?;
    let (pid, control) = (process.pid, process.control.clone());
    read_all(process.events).await?;
    eventually("the end of a finished process", || async {
        Ok(!sandbox.require_processes()?.signal(pid, Signal::TERM).await?
            && !control.signal(Signal::TERM).await?)
    })
    .await
}

async fn invalid_signal_is_refused(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = spawn(&*sandbox, "sleep 600", SpawnOptions::new()).await?;
    for number in [-1, 4242] {
        let sent = process.control.signal(Signal(number)).await;
        expect_error(sent, &[ErrorKind::InvalidInput, ErrorKind::Unsupported], "an impossible signal")?;
    }
    process.control.signal(Signal::KILL).await?;
    Ok(())
}

pub(super) async fn listed(processes: &dyn Processes, pid: u32) -> Checked<bool> {
    Ok(processes.list().await?.iter().any(|process| process.pid == pid))
}

async fn listed_while_it_runs(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = spawn(&*sandbox, "sleep 600", SpawnOptions::new()).await?;
    let there = listed(sandbox.require_processes()?, process.pid).await?;
    process.control.signal(Signal::KILL).await?;
    ensure!(there, "a running process is not listed");
    Ok(())
}

async fn list_shows_what_was_asked(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let tag = bed.unique("tag");
    let command = Command::new("sleep").arg("600");
    let options = SpawnOptions::new().with_tag(&tag).with_cwd(at("/tmp")?);
    let process = sandbox.require_processes()?.spawn(&command, options).await?;
    let all = sandbox.require_processes()?.list().await?;
    process.control.signal(Signal::KILL).await?;
    let Some(info) = all.iter().find(|info| info.pid == process.pid) else {
        return fail("a running process is not listed");
    };
    ensure_eq!(info.tag.as_deref(), Some(tag.as_str()), "tag");
    ensure_eq!(info.argv, vec!["sleep", "600"], "program and arguments");
    ensure_eq!(info.cwd.as_deref(), Some("/tmp"), "working folder");
    Ok(())
}

async fn finished_is_not_listed(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = spawn(&*sandbox, "true", SpawnOptions::new()).await?;
    let pid = process.pid;
    read_all(process.events).await?;
    eventually("its absence from the list", || async {
        Ok(!listed(sandbox.require_processes()?, pid).await?)
    })
    .await
}

async fn attach_gives_what_comes(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let mut process = open(&*sandbox, "echo before; read line; echo after").await?;
    wait_for(&mut process, "before").await?;
    let attached = sandbox.require_processes()?.attach(process.pid).await?;
    process.control.write(Bytes::from("go\n")).await?;
    let said = read_all(attached.events).await?;
    ensure_eq!(String::from_utf8_lossy(&said.stdout), "after\n", "what the new handle hears");
    Ok(())
}

async fn attach_can_talk(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = open(&*sandbox, "read line; echo \"got $line\"").await?;
    let attached = sandbox.require_processes()?.attach(process.pid).await?;
    attached.control.write(Bytes::from("hi\n")).await?;
    ensure_eq!(read_all(process.events).await?.stdout, b"got hi\n", "output");
    Ok(())
}

async fn attach_to_none_is_not_found(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let attached = sandbox.require_processes()?.attach(4_000_000).await;
    expect_error(attached, &[ErrorKind::NotFound], "attach to a process that does not exist").map(drop)
}

async fn two_handles_hear_the_same(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = open(&*sandbox, "read line; echo one; echo two >&2; exit 3").await?;
    let attached = sandbox.require_processes()?.attach(process.pid).await?;
    process.control.write(Bytes::from("go\n")).await?;
    for events in [process.events, attached.events] {
        let said = read_all(events).await?;
        ensure_eq!(said.stdout, b"one\n", "standard output");
        ensure_eq!(said.stderr, b"two\n", "standard error");
        ensure_eq!(said.status, Some(ExitStatus::Code(3)), "status");
    }
    Ok(())
}

async fn dropping_the_handle_does_not_end_it(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    part(sandbox.processes(), &*sandbox, "processes")?;
    let path = folder.join("done")?;
    let script = format!("echo talking; sleep 0.5; echo more; echo done > {path}");
    drop(spawn(&*sandbox, &script, SpawnOptions::new()).await?);
    eventually("the file of the process", || async { Ok(sandbox.files().exists(&path).await?) }).await
}

/// Longer than a busy machine takes to start a script.
const STARTED_BY_THEN: Duration = Duration::from_secs(2);

/// Spawns a script that takes longer than that and expects the timeout.
async fn too_long(sandbox: &dyn Sandbox, script: &str) -> Checked {
    let options = SpawnOptions::new().with_timeout(STARTED_BY_THEN);
    let mut process = spawn(sandbox, script, options).await?;
    let end = async {
        while let Some(event) = process.events.next().await {
            match event {
                Err(error) => return Some(error),
                Ok(ProcessEvent::Exit(_)) => return None,
                Ok(_) => {}
            }
        }
        None
    };
    match tokio::time::timeout(PATIENCE, end).await {
        Err(_) => fail("the timeout did not come"),
        Ok(None) => fail("the events ended without the timeout's error"),
        Ok(Some(error)) => {
            ensure_eq!(error.kind(), ErrorKind::Timeout, "kind of the error");
            Ok(())
        }
    }
}

async fn timeout_is_an_error(bed: &Bed<'_>) -> Checked {
    too_long(&*with_processes(bed).await?, "sleep 600").await
}

async fn timeout_ends_the_tree(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    part(sandbox.processes(), &*sandbox, "processes")?;
    let file = folder.join("child")?;
    too_long(&*sandbox, &format!("sleep 600 & echo $! > {file}; wait")).await?;
    let probe = format!("kill -0 \"$(cat {file})\" 2>/dev/null && echo alive || echo gone");
    eventually("the end of the child", || async {
        Ok(sh(&*sandbox, &probe).await?.stdout_lossy() == "gone\n")
    })
    .await
}

async fn resize_without_terminal_is_a_conflict(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let process = spawn(&*sandbox, "sleep 600", SpawnOptions::new()).await?;
    let resized = process.control.resize(PtySize { cols: 80, rows: 24 }).await;
    process.control.signal(Signal::KILL).await?;
    expect_error(resized, &[ErrorKind::Conflict], "resize without a terminal").map(drop)
}

async fn terminal_is_real_or_refused(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let options = SpawnOptions::new().with_pty(PtySize { cols: 91, rows: 33 });
    let command = Command::shell("test -t 0 && test -t 1 && stty size");
    match sandbox.require_processes()?.spawn(&command, options).await {
        Err(error) => ensure_eq!(error.kind(), ErrorKind::Unsupported, "kind of the refusal"),
        Ok(process) => {
            let said = read_all(process.events).await?;
            let text = String::from_utf8_lossy(&said.terminal).into_owned();
            ensure!(text.contains("33 91"), "no terminal of the size asked for: {said:?}");
            ensure!(said.stdout.is_empty(), "a terminal's output came as standard output");
        }
    }
    Ok(())
}

async fn terminal_interrupts(bed: &Bed<'_>) -> Checked {
    bed.need(Feature::Terminals)?;
    let sandbox = with_processes(bed).await?;
    let options = SpawnOptions::new().with_pty(PtySize { cols: 80, rows: 24 });
    let mut process = spawn(&*sandbox, "echo ready; exec sleep 600", options).await?;
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("ready") {
        match tokio::time::timeout(PATIENCE, process.events.next()).await {
            Ok(Some(Ok(ProcessEvent::Terminal(bytes)))) => text.extend_from_slice(&bytes),
            other => return fail(format!("expected the terminal's output, got {other:?}")),
        }
    }
    process.control.write(Bytes::from_static(b"\x03")).await?;
    let said = read_all(process.events).await?;
    ensure_eq!(said.status, Some(ExitStatus::Signal(2)), "status after byte 3");
    Ok(())
}

async fn sleeping_sandbox_is_a_conflict(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    part(sandbox.processes(), &*sandbox, "processes")?;
    let spawned = sandbox.require_processes()?.spawn(&Command::new("true"), SpawnOptions::new()).await;
    expect_error(spawned, &[ErrorKind::Conflict], "a spawn in a sleeping sandbox").map(drop)
}
