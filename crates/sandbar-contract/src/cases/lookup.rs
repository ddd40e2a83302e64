use std::time::Duration;

use sandbar_core::{ErrorKind, FilesExt, GetOptions, ProviderExt, SandboxId, SandboxRecord, State, Wake};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, expect_error, fail, sh};
use crate::harness::Fault;

group!("lookup";
    get_finds_what_was_made, get_of_unknown_is_none, describe_of_unknown_is_none,
    foreign_ids_are_absent, require_of_unknown_is_not_found, failed_get_is_an_error,
    failed_describe_is_an_error, failed_record_is_an_error, failure_says_the_state_is_unknown,
    get_does_not_wake, describe_does_not_wake, record_does_not_wake, get_with_wake_wakes,
    get_does_not_extend, describe_does_not_extend, describe_touches_nothing, get_and_describe_agree,
    handles_share_one_sandbox, handle_of_a_gone_sandbox_is_lazy, handles_work_in_other_tasks,
);

async fn get_finds_what_was_made(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    match bed.provider().get(sandbox.id()).await? {
        Some(handle) => ensure_eq!(handle.id(), sandbox.id(), "id"),
        None => return fail("a sandbox that exists is absent"),
    }
    Ok(())
}

async fn get_of_unknown_is_none(bed: &Bed<'_>) -> Checked {
    let found = bed.provider().get(&bed.absent_id()?).await?;
    ensure!(found.is_none(), "an unknown id was found");
    Ok(())
}

async fn describe_of_unknown_is_none(bed: &Bed<'_>) -> Checked {
    let found = bed.provider().describe(&bed.absent_id()?).await?;
    ensure!(found.is_none(), "an unknown id was described");
    Ok(())
}

async fn foreign_ids_are_absent(bed: &Bed<'_>) -> Checked {
    let long = "x".repeat(200);
    for id in ["i", "UPPER_lower-09", "0", long.as_str(), "aux", "sandboxes", "null"] {
        let id = SandboxId::new(id)?;
        ensure!(bed.provider().get(&id).await?.is_none(), "`{id}` was found");
        ensure!(bed.provider().describe(&id).await?.is_none(), "`{id}` was described");
        ensure!(!bed.provider().destroy(&id).await?, "`{id}` was destroyed");
    }
    Ok(())
}

async fn require_of_unknown_is_not_found(bed: &Bed<'_>) -> Checked {
    let required = bed.provider().require(&bed.absent_id()?).await;
    expect_error(required, &[ErrorKind::NotFound], "a handle that has to exist").map(drop)
}

/// A failed lookup is an error, and none that says that the thing does not exist.
fn check_failed<T>(
    result: Result<Option<T>, sandbar_core::Error>,
    what: &str,
) -> Checked<sandbar_core::Error> {
    match result {
        Ok(None) => fail(format!("{what}: a failed lookup answered that there is nothing")),
        Ok(Some(_)) => fail(format!("{what}: a failed lookup answered something")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fail(format!("{what}: a failed lookup is `NotFound`: {error}"))
        }
        Err(error) => Ok(error),
    }
}

async fn failed_get_is_an_error(bed: &Bed<'_>) -> Checked {
    let faulty = bed.faulty().await?;
    let sandbox = faulty.provider().create(faulty.options.clone()).await?;
    faulty.arm(Fault::Lookup)?;
    check_failed(faulty.provider().get(sandbox.id()).await, "get")?;
    ensure!(faulty.provider().get(sandbox.id()).await?.is_some(), "the next lookup does not find it");
    Ok(())
}

async fn failed_describe_is_an_error(bed: &Bed<'_>) -> Checked {
    let faulty = bed.faulty().await?;
    let sandbox = faulty.provider().create(faulty.options.clone()).await?;
    faulty.arm(Fault::Lookup)?;
    check_failed(faulty.provider().describe(sandbox.id()).await, "describe").map(drop)
}

async fn failed_record_is_an_error(bed: &Bed<'_>) -> Checked {
    let faulty = bed.faulty().await?;
    let sandbox = faulty.provider().create(faulty.options.clone()).await?;
    faulty.arm(Fault::Lookup)?;
    check_failed(sandbox.record().await.map(Some), "record").map(drop)
}

async fn failure_says_the_state_is_unknown(bed: &Bed<'_>) -> Checked {
    let faulty = bed.faulty().await?;
    let sandbox = faulty.provider().create(faulty.options.clone()).await?;
    faulty.arm(Fault::Lookup)?;
    let error = check_failed(faulty.provider().describe(sandbox.id()).await, "describe")?;
    ensure!(
        error.to_string().contains("unknown"),
        "the error does not say that the state is unknown: {error}"
    );
    ensure!(std::error::Error::source(&error).is_some(), "the error does not carry its cause: {error}");
    Ok(())
}

async fn get_does_not_wake(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    bed.provider().get(sandbox.id()).await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.state, State::Sleeping, "state after get");
    Ok(())
}

async fn describe_does_not_wake(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    bed.describe(sandbox.id()).await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.state, State::Sleeping, "state after describe");
    Ok(())
}

async fn record_does_not_wake(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    sandbox.record().await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.state, State::Sleeping, "state after record");
    Ok(())
}

async fn get_with_wake_wakes(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    let Some(handle) = bed.provider().get_opts(sandbox.id(), GetOptions { wake: Wake::Yes }).await? else {
        return fail("a sleeping sandbox is absent");
    };
    ensure_eq!(handle.record().await?.state, State::Running, "state");
    sh(&*handle, "true").await.map(drop)
}

/// A way to look at a sandbox.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Get,
    Describe,
}

/// The records of a sandbox with a deadline before and after a look at it.
async fn around(bed: &Bed<'_>, look: Look) -> Checked<(SandboxRecord, SandboxRecord)> {
    let sandbox = bed.create(bed.options()?.with_deadline(Duration::from_secs(600))).await?;
    let before = bed.describe(sandbox.id()).await?;
    // The clock has to move for an extension to show.
    tokio::time::sleep(Duration::from_millis(30)).await;
    match look {
        Look::Get => drop(bed.provider().get(sandbox.id()).await?),
        Look::Describe => drop(bed.describe(sandbox.id()).await?),
    }
    Ok((before, bed.describe(sandbox.id()).await?))
}

async fn get_does_not_extend(bed: &Bed<'_>) -> Checked {
    let (before, after) = around(bed, Look::Get).await?;
    ensure!(before.deadline.is_some(), "the deadline asked for is not in the record");
    ensure_eq!(after.deadline, before.deadline, "deadline after get");
    Ok(())
}

async fn describe_does_not_extend(bed: &Bed<'_>) -> Checked {
    let (before, after) = around(bed, Look::Describe).await?;
    ensure!(before.deadline.is_some(), "the deadline asked for is not in the record");
    ensure_eq!(after.deadline, before.deadline, "deadline after describe");
    Ok(())
}

async fn describe_touches_nothing(bed: &Bed<'_>) -> Checked {
    let (before, after) = around(bed, Look::Describe).await?;
    let json = |record: &SandboxRecord| serde_json::to_value(record).ok();
    ensure!(json(&before).is_some(), "the record has no JSON form");
    ensure_eq!(json(&after), json(&before), "the record after describe");
    Ok(())
}

async fn get_and_describe_agree(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let described = bed.describe(sandbox.id()).await?;
    let recorded = bed.provider().require(sandbox.id()).await?.record().await?;
    ensure_eq!(recorded.state, described.state, "state");
    ensure_eq!(recorded.labels, described.labels, "labels");
    ensure_eq!(recorded.deadline, described.deadline, "deadline");
    Ok(())
}

async fn handles_share_one_sandbox(bed: &Bed<'_>) -> Checked {
    let one = bed.fresh().await?;
    let other = bed.provider().require(one.id()).await?;
    let path = at("/tmp/shared")?;
    one.files().write(&path, "by one".into()).await?;
    ensure_eq!(other.files().read(&path).await?, "by one", "what the other handle reads");
    Ok(())
}

async fn handle_of_a_gone_sandbox_is_lazy(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let handle = bed.provider().require(sandbox.id()).await?;
    bed.provider().destroy(sandbox.id()).await?;
    expect_error(handle.record().await, &[ErrorKind::NotFound], "record of a gone sandbox").map(drop)
}

async fn handles_work_in_other_tasks(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("by-task")?;
    let task = {
        let (sandbox, path) = (sandbox.clone(), path.clone());
        tokio::spawn(async move { sandbox.files().write(&path, "x".into()).await })
    };
    match task.await {
        Ok(written) => written.map(drop)?,
        Err(panic) => return fail(format!("the task failed: {panic}")),
    }
    ensure_eq!(sandbox.files().read(&path).await?, "x", "content");
    Ok(())
}
