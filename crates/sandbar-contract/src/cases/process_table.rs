use futures::StreamExt;
use sandbar_core::{
    ErrorKind, Process, ProcessEvent, ProcessInput, ProcessOrigin, Sandbox, SandboxExt, Signal, SignalReach,
    SpawnOptions,
};

use super::processes::{listed, open, spawn, with_processes};
use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, PATIENCE, ensure, ensure_eq, eventually, fail, sh, skip};

group!("process_table";
    all_are_listed_whoever_started_them, list_all_says_how_it_is_talked_to,
    any_can_be_signalled_alone_or_with_its_tree, signal_any_to_none_is_false,
);

/// Starts another process, and says its number.
const SCRIPT: &str = "sleep 600 & echo \"child $! \"; wait";

/// A started process that started another one, `sleep 600`; the number of the other.
async fn with_child(sandbox: &dyn Sandbox, script: &str) -> Checked<(Process, u32)> {
    let mut process = spawn(sandbox, script, SpawnOptions::new()).await?;
    let mut text = String::new();
    while !text.contains(" \n") {
        match tokio::time::timeout(PATIENCE, process.events.next()).await {
            Ok(Some(Ok(ProcessEvent::Stdout(bytes)))) => text.push_str(&String::from_utf8_lossy(&bytes)),
            other => return fail(format!("expected the child's number, got {other:?}")),
        }
    }
    match text.trim().trim_start_matches("child ").parse() {
        Ok(child) => Ok((process, child)),
        Err(_) => fail(format!("expected the child's number, got {text:?}")),
    }
}

/// Skips where only the started processes are known.
fn known<T>(result: sandbar_core::Result<T>) -> Checked<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::Unsupported => skip("only started processes are known"),
        result => Ok(result?),
    }
}

async fn all_are_listed_whoever_started_them(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let (process, child) = with_child(&*sandbox, SCRIPT).await?;
    let part = sandbox.require_processes()?;
    let all = known(part.list_all().await)?;
    let started = part.list().await?;
    process.control.signal(Signal::KILL).await?;
    let of = |pid: u32| all.iter().find(|info| info.pid == pid);
    let (Some(outer), Some(inner)) = (of(process.pid), of(child)) else {
        return fail(format!("expected {} and {child}, got {all:?}", process.pid));
    };
    ensure_eq!(outer.origin, ProcessOrigin::Contract, "origin of a started process");
    ensure_eq!(inner.origin, ProcessOrigin::Inside, "origin of what it started");
    ensure!(
        started.iter().all(|info| info.pid != child),
        "a process that nobody started is among the started ones"
    );
    Ok(())
}

async fn list_all_says_how_it_is_talked_to(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let part = sandbox.require_processes()?;
    let closed = spawn(&*sandbox, "sleep 600", SpawnOptions::new()).await?;
    let open = open(&*sandbox, "sleep 600").await?;
    let all = known(part.list_all().await)?;
    closed.control.signal(Signal::KILL).await?;
    open.control.signal(Signal::KILL).await?;
    for (pid, expected) in [(closed.pid, ProcessInput::None), (open.pid, ProcessInput::Open)] {
        let Some(info) = all.iter().find(|info| info.pid == pid) else {
            return fail("a running process is not listed");
        };
        // What is not known is absent; what is told has to be so.
        ensure!(info.input.is_none_or(|input| input == expected), "input is said to be {:?}", info.input);
    }
    Ok(())
}

async fn any_can_be_signalled_alone_or_with_its_tree(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    let part = sandbox.require_processes()?;
    let alive = |pid: u32| {
        let sandbox = &sandbox;
        async move {
            let probe = format!("kill -0 {pid} 2>/dev/null && echo alive || echo gone");
            Checked::Ok(sh(&**sandbox, &probe).await?.stdout_lossy() == "alive\n")
        }
    };
    // Alone: what it started lives on.
    let (Process { pid, .. }, child) = with_child(&*sandbox, SCRIPT).await?;
    let there = known(part.signal_any(pid, Signal::KILL, SignalReach::Process).await)?;
    ensure!(there, "a running process was said to be absent");
    eventually("its end", || async { Ok(!listed(part, pid).await?) }).await?;
    ensure!(alive(child).await?, "a signal to one process reached another");
    // One that nobody started.
    let there = known(part.signal_any(child, Signal::KILL, SignalReach::Tree).await)?;
    ensure!(there, "a running process was said to be absent");
    eventually("the end of the child", || async { Ok(!alive(child).await?) }).await?;
    // With its tree.
    let (Process { pid, .. }, child) = with_child(&*sandbox, SCRIPT).await?;
    known(part.signal_any(pid, Signal::KILL, SignalReach::Tree).await)?;
    eventually("the end of the child", || async { Ok(!alive(child).await?) }).await
}

async fn signal_any_to_none_is_false(bed: &Bed<'_>) -> Checked {
    let sandbox = with_processes(bed).await?;
    for reach in [SignalReach::Tree, SignalReach::Process] {
        let sent = sandbox.require_processes()?.signal_any(4_000_000, Signal::TERM, reach).await;
        ensure!(!known(sent)?, "a process that does not exist was said to be there");
    }
    Ok(())
}
