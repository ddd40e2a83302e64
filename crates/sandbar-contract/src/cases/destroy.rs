use std::time::Duration;

use futures::StreamExt;
use sandbar_core::{
    Command, Deadline, DeadlineMode, ErrorKind, FilesExt, ProcessEvent, ProviderExt, RunOptions, SpawnOptions,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, PATIENCE, at, ensure, ensure_eq, expect_error, fail, part, sh};
use crate::harness::Fault;

group!("destroy";
    says_true_then_false, of_unknown_is_false, then_get_is_none, then_describe_is_none, handle_destroys_too,
    then_commands_are_not_found, then_files_are_not_found, then_deadline_is_not_found, leaves_the_others,
    of_a_sleeping_one_works, ends_processes, ends_a_command_under_way, failed_destroy_is_an_error,
    concurrent_destroys_agree,
);

async fn says_true_then_false(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    ensure!(bed.provider().destroy(sandbox.id()).await?, "the first destroy said that it was absent");
    ensure!(!bed.provider().destroy(sandbox.id()).await?, "the second destroy said that it was there");
    Ok(())
}

async fn of_unknown_is_false(bed: &Bed<'_>) -> Checked {
    let there = bed.provider().destroy(&bed.absent_id()?).await?;
    ensure!(!there, "destroy said that an unknown id was there");
    Ok(())
}

async fn then_get_is_none(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    bed.provider().destroy(sandbox.id()).await?;
    ensure!(bed.provider().get(sandbox.id()).await?.is_none(), "a destroyed sandbox was found");
    Ok(())
}

async fn then_describe_is_none(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    bed.provider().destroy(sandbox.id()).await?;
    ensure!(bed.provider().describe(sandbox.id()).await?.is_none(), "a destroyed sandbox was described");
    Ok(())
}

async fn handle_destroys_too(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    ensure!(sandbox.destroy().await?, "the handle's destroy said that it was absent");
    ensure!(!sandbox.destroy().await?, "the handle's second destroy said that it was there");
    ensure!(bed.provider().get(sandbox.id()).await?.is_none(), "it is still found");
    Ok(())
}

async fn then_commands_are_not_found(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    bed.provider().destroy(sandbox.id()).await?;
    let ran = sandbox.commands().run(&Command::new("true")).await;
    expect_error(ran, &[ErrorKind::NotFound], "a command in a gone sandbox").map(drop)
}

async fn then_files_are_not_found(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    bed.provider().destroy(sandbox.id()).await?;
    let path = at("/tmp")?;
    // Not `None`: that a file is absent says something else than that its sandbox is.
    expect_error(sandbox.files().stat(&path).await, &[ErrorKind::NotFound], "stat in a gone sandbox")?;
    expect_error(sandbox.files().list(&path).await, &[ErrorKind::NotFound], "list in a gone sandbox")?;
    Ok(())
}

async fn then_deadline_is_not_found(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    bed.provider().destroy(sandbox.id()).await?;
    let set = sandbox.set_deadline(Deadline::In(Duration::from_secs(60)), DeadlineMode::Set).await;
    expect_error(set, &[ErrorKind::NotFound], "a deadline for a gone sandbox").map(drop)
}

async fn leaves_the_others(bed: &Bed<'_>) -> Checked {
    let (one, other) = (bed.fresh().await?, bed.fresh().await?);
    sh(&*other, "echo mine > /tmp/mine").await?;
    bed.provider().destroy(one.id()).await?;
    ensure_eq!(sh(&*other, "cat /tmp/mine").await?.stdout_lossy(), "mine\n", "the other's file");
    Ok(())
}

async fn of_a_sleeping_one_works(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    ensure!(bed.provider().destroy(sandbox.id()).await?, "a sleeping sandbox was said to be absent");
    ensure!(bed.provider().describe(sandbox.id()).await?.is_none(), "it is still there");
    Ok(())
}

async fn ends_processes(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let processes = part(sandbox.processes(), &*sandbox, "processes")?;
    let command = Command::shell("sleep 600");
    let mut process = processes.spawn(&command, SpawnOptions::new()).await?;
    bed.provider().destroy(sandbox.id()).await?;
    let end = async {
        while let Some(Ok(event)) = process.events.next().await {
            if let ProcessEvent::Exit(exit) = event {
                return Some(exit);
            }
        }
        None
    };
    match tokio::time::timeout(PATIENCE, end).await {
        Err(_) => fail("the events of a process in a destroyed sandbox go on"),
        Ok(Some(exit)) if exit.status.is_success() => fail("the killed process ended with success"),
        Ok(_) => Ok(()),
    }
}

async fn ends_a_command_under_way(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let command = Command::shell("echo begun > /tmp/begun; sleep 600");
    let running = {
        let sandbox = sandbox.clone();
        tokio::spawn(async move { sandbox.commands().run_opts(&command, RunOptions::default()).await })
    };
    let path = at("/tmp/begun")?;
    crate::check::eventually("the command's file", || async { Ok(sandbox.files().exists(&path).await?) })
        .await?;
    bed.provider().destroy(sandbox.id()).await?;
    match tokio::time::timeout(PATIENCE, running).await {
        Err(_) => fail("a command goes on in a destroyed sandbox"),
        Ok(Ok(Ok(output))) if output.status.is_success() => fail("the ended command is a success"),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(panic)) => fail(format!("the call failed: {panic}")),
    }
}

async fn failed_destroy_is_an_error(bed: &Bed<'_>) -> Checked {
    let faulty = bed.faulty().await?;
    let sandbox = faulty.provider().create(faulty.options.clone()).await?;
    faulty.arm(Fault::Destroy)?;
    if let Ok(there) = faulty.provider().destroy(sandbox.id()).await {
        return fail(format!("a destroy that failed answered {there}"));
    }
    ensure!(faulty.provider().describe(sandbox.id()).await?.is_some(), "it is gone after a failed destroy");
    ensure!(faulty.provider().destroy(sandbox.id()).await?, "it can't be destroyed after a failed destroy");
    Ok(())
}

async fn concurrent_destroys_agree(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let results = futures::future::join_all((0..4).map(|_| bed.provider().destroy(sandbox.id()))).await;
    let mut said = Vec::new();
    for result in results {
        said.push(result?);
    }
    ensure!(said.contains(&true), "four destroys at once all said that it was absent");
    ensure!(bed.provider().describe(sandbox.id()).await?.is_none(), "it is still there");
    Ok(())
}
