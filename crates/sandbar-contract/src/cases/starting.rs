use std::sync::Arc;

use sandbar_core::{
    Command, ErrorKind, FilesExt, ForkOptions, MainCommand, MainState, Sandbox, SandboxExt, State,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{
    Checked, at, ensure, ensure_eq, eventually, expect_error, part, sh, skip, skip_unsupported,
};

group!("starting";
    a_dead_one_is_stopped, a_stopped_one_refuses_commands, resume_starts_it, its_files_are_there,
    its_processes_are_not_and_that_is_said, it_is_the_same_sandbox, its_main_command_is_started_anew,
    a_stopped_one_can_be_copied, a_stopped_one_can_be_destroyed,
);

/// A sandbox with a file, all whose processes are gone.
async fn stopped(bed: &Bed<'_>) -> Checked<Arc<dyn Sandbox>> {
    let shared = bed.shared().await?;
    part(shared.pausing(), &*shared, "pausing")?;
    let sandbox = bed.fresh().await?;
    sh(&*sandbox, "echo kept > ~/kept; echo kept > /tmp/kept").await?;
    stop(bed, &*sandbox).await?;
    Ok(sandbox)
}

async fn stop(bed: &Bed<'_>, sandbox: &dyn Sandbox) -> Checked {
    if !bed.stop(sandbox.id()).await {
        return skip("the harness can't end the processes of a sandbox");
    }
    let look = || async { Ok(bed.describe(sandbox.id()).await?.state == State::Stopped) };
    eventually("it is stopped", look).await
}

async fn resume(sandbox: &dyn Sandbox) -> Checked<bool> {
    Ok(skip_unsupported(sandbox.require_pausing()?.resume().await)?.processes_preserved)
}

async fn a_dead_one_is_stopped(bed: &Bed<'_>) -> Checked {
    let sandbox = stopped(bed).await?;
    let record = bed.describe(sandbox.id()).await?;
    ensure!(record.reason.is_some(), "a stopped sandbox does not say why");
    ensure!(record.ports.is_empty(), "a stopped sandbox has ports");
    Ok(())
}

async fn a_stopped_one_refuses_commands(bed: &Bed<'_>) -> Checked {
    let sandbox = stopped(bed).await?;
    let run = sandbox.commands().run(&Command::new("true")).await;
    let error = expect_error(run, &[ErrorKind::Conflict], "a command in a stopped sandbox")?;
    ensure_eq!(error.state(), Some(State::Stopped), "the state in the error");
    Ok(())
}

async fn resume_starts_it(bed: &Bed<'_>) -> Checked {
    let sandbox = stopped(bed).await?;
    resume(&*sandbox).await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.state, State::Running, "state");
    sh(&*sandbox, "true").await.map(drop)
}

async fn its_files_are_there(bed: &Bed<'_>) -> Checked {
    let sandbox = stopped(bed).await?;
    resume(&*sandbox).await?;
    ensure_eq!(sh(&*sandbox, "cat ~/kept /tmp/kept").await?.stdout_lossy(), "kept\nkept\n", "the files");
    Ok(())
}

async fn its_processes_are_not_and_that_is_said(bed: &Bed<'_>) -> Checked {
    let sandbox = stopped(bed).await?;
    ensure!(!resume(&*sandbox).await?, "it says that its processes were preserved");
    Ok(())
}

async fn it_is_the_same_sandbox(bed: &Bed<'_>) -> Checked {
    let sandbox = stopped(bed).await?;
    let before = bed.describe(sandbox.id()).await?;
    resume(&*sandbox).await?;
    let after = bed.describe(sandbox.id()).await?;
    ensure_eq!(after.created_at, before.created_at, "its creation");
    ensure_eq!(after.labels, before.labels, "its labels");
    ensure_eq!(after.deadline, before.deadline, "its deadline");
    ensure_eq!(after.reason, None, "the reason of one that runs");
    Ok(())
}

async fn its_main_command_is_started_anew(bed: &Bed<'_>) -> Checked {
    let shared = bed.shared().await?;
    part(shared.pausing(), &*shared, "pausing")?;
    let main = MainCommand::new(Command::shell("echo begun >> ~/begun; exec sleep 600"));
    let sandbox = skip_unsupported(bed.create(bed.options()?.with_main(main)).await)?;
    stop(bed, &*sandbox).await?;
    resume(&*sandbox).await?;
    let status = sandbox.require_main_command()?.status().await?;
    ensure_eq!(status.map(|status| status.state), Some(MainState::Running), "its main command");
    eventually("it began twice", || async {
        Ok(sandbox.files().read(&at("/home/user/begun")?).await? == "begun\nbegun\n")
    })
    .await
}

async fn a_stopped_one_can_be_copied(bed: &Bed<'_>) -> Checked {
    let sandbox = stopped(bed).await?;
    let forking = part(sandbox.forking(), &*sandbox, "forking")?;
    let (copy, _) = skip_unsupported(forking.fork(ForkOptions::default()).await)?;
    bed.adopt(copy.id());
    ensure_eq!(sh(&*copy, "cat ~/kept").await?.stdout_lossy(), "kept\n", "the copy's file");
    ensure_eq!(bed.describe(sandbox.id()).await?.state, State::Stopped, "the parent's state");
    Ok(())
}

async fn a_stopped_one_can_be_destroyed(bed: &Bed<'_>) -> Checked {
    let sandbox = stopped(bed).await?;
    ensure!(sandbox.destroy().await?, "it was absent");
    ensure!(bed.provider().describe(sandbox.id()).await?.is_none(), "it is still there");
    Ok(())
}
