use std::sync::Arc;
use std::time::Duration;

use sandbar_core::{FilesExt, Sandbox, SandboxExt, State};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, eventually, part, sh};

group!("pausing";
    hibernate_makes_it_sleep, resume_makes_it_run, wake_makes_it_run, wake_of_a_running_one_changes_nothing,
    outcome_is_what_happened, outcome_names_its_mechanism, files_survive, sleeping_makes_no_progress,
    hibernate_twice_is_harmless, resume_of_a_running_one_is_harmless, sleeping_has_no_ports,
    handle_from_before_works_after,
);

async fn pausable(bed: &Bed<'_>) -> Checked<Arc<dyn Sandbox>> {
    let shared = bed.shared().await?;
    part(shared.pausing(), &*shared, "pausing")?;
    bed.fresh().await
}

async fn hibernate_makes_it_sleep(bed: &Bed<'_>) -> Checked {
    let sandbox = pausable(bed).await?;
    sandbox.require_pausing()?.hibernate().await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.state, State::Sleeping, "state");
    Ok(())
}

async fn resume_makes_it_run(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    sandbox.require_pausing()?.resume().await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.state, State::Running, "state");
    sh(&*sandbox, "true").await.map(drop)
}

async fn wake_makes_it_run(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    sandbox.wake().await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.state, State::Running, "state");
    sh(&*sandbox, "true").await.map(drop)
}

async fn wake_of_a_running_one_changes_nothing(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    sandbox.wake().await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.state, State::Running, "state");
    Ok(())
}

/// Starts a process in the background and answers the script that tells whether it lives.
async fn marker(sandbox: &dyn Sandbox) -> Checked<String> {
    let output = sh(sandbox, "sleep 600 >/dev/null 2>&1 & echo $!").await?;
    let pid = output.stdout_lossy().trim().to_owned();
    Ok(format!("kill -0 {pid} 2>/dev/null && echo alive || echo gone"))
}

async fn outcome_is_what_happened(bed: &Bed<'_>) -> Checked {
    let sandbox = pausable(bed).await?;
    let probe = marker(&*sandbox).await?;
    let slept = sandbox.require_pausing()?.hibernate().await?;
    let woke = sandbox.require_pausing()?.resume().await?;
    let alive = sh(&*sandbox, &probe).await?.stdout_lossy() == "alive\n";
    ensure_eq!(slept.processes_preserved, alive, "what hibernate said of the processes");
    ensure_eq!(woke.processes_preserved, alive, "what resume said of the processes");
    Ok(())
}

async fn outcome_names_its_mechanism(bed: &Bed<'_>) -> Checked {
    let sandbox = pausable(bed).await?;
    let outcome = sandbox.require_pausing()?.hibernate().await?;
    ensure!(!outcome.mechanism.is_empty(), "hibernate names no mechanism");
    ensure!(!sandbox.require_pausing()?.resume().await?.mechanism.is_empty(), "resume names no mechanism");
    Ok(())
}

async fn files_survive(bed: &Bed<'_>) -> Checked {
    let sandbox = pausable(bed).await?;
    let path = at("/tmp/kept")?;
    sandbox.files().write(&path, "kept".into()).await?;
    sandbox.require_pausing()?.hibernate().await?;
    sandbox.require_pausing()?.resume().await?;
    ensure_eq!(sandbox.files().read(&path).await?, "kept", "content");
    Ok(())
}

async fn sleeping_makes_no_progress(bed: &Bed<'_>) -> Checked {
    let sandbox = pausable(bed).await?;
    let path = at("/tmp/ticks")?;
    let script = "(while true; do echo tick >> /tmp/ticks; sleep 0.02; done) >/dev/null 2>&1 & true";
    sh(&*sandbox, script).await?;
    eventually("the first tick", || async { Ok(sandbox.files().exists(&path).await?) }).await?;
    sandbox.require_pausing()?.hibernate().await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    sandbox.require_pausing()?.resume().await?;
    let lines = sh(&*sandbox, "wc -l < /tmp/ticks").await?;
    let ticks: usize = lines.stdout_lossy().trim().parse().unwrap_or(usize::MAX);
    // In three seconds awake it would have made about a hundred and fifty; those before and after sleep, on a busy machine, are its right.
    ensure!(ticks < 110, "a sleeping sandbox went on: {ticks} ticks");
    Ok(())
}

async fn hibernate_twice_is_harmless(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    sandbox.require_pausing()?.hibernate().await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.state, State::Sleeping, "state");
    sandbox.wake().await?;
    sh(&*sandbox, "true").await.map(drop)
}

async fn resume_of_a_running_one_is_harmless(bed: &Bed<'_>) -> Checked {
    let sandbox = pausable(bed).await?;
    let probe = marker(&*sandbox).await?;
    let outcome = sandbox.require_pausing()?.resume().await?;
    ensure!(outcome.processes_preserved, "resume of a running sandbox says that its processes are gone");
    ensure_eq!(sh(&*sandbox, &probe).await?.stdout_lossy(), "alive\n", "the process");
    Ok(())
}

async fn sleeping_has_no_ports(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    let ports = bed.describe(sandbox.id()).await?.ports;
    ensure!(ports.is_empty(), "a sleeping sandbox has published ports: {ports:?}");
    Ok(())
}

async fn handle_from_before_works_after(bed: &Bed<'_>) -> Checked {
    let sandbox = pausable(bed).await?;
    let id = sandbox.id().clone();
    sandbox.require_pausing()?.hibernate().await?;
    sandbox.wake().await?;
    ensure_eq!(sh(&*sandbox, "echo again").await?.stdout_lossy(), "again\n", "output");
    ensure_eq!(*sandbox.id(), id, "id");
    Ok(())
}
