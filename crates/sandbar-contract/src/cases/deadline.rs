use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sandbar_core::{
    Deadline, DeadlineAction, DeadlineMode, ErrorKind, FilesExt, ProviderExt, Query, Sandbox, State,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, eventually, expect_error, fail, sh, skip_unsupported};

group!("deadline";
    expiry_destroys, expiry_of_an_expired_is_not_listed, expiry_ends_a_command_under_way, expiry_can_pause,
    set_makes_it_earlier, set_makes_it_later, extend_only_never_shortens, extend_only_extends, never_removes_it,
    at_a_time_is_kept, answer_is_the_one_in_force, set_earlier_really_expires, never_really_lives_on,
    commands_do_not_extend_it, action_can_be_changed, woken_it_has_time_again, a_sleep_is_no_more_time_to_live,
);

const SHORT: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(7200);

/// A sandbox that ends in an hour.
async fn hour(bed: &Bed<'_>) -> Checked<Arc<dyn Sandbox>> {
    Ok(bed.create(bed.options()?.with_deadline(Duration::from_secs(3600))).await?)
}

async fn gone(bed: &Bed<'_>, sandbox: &dyn Sandbox) -> Checked {
    let id = sandbox.id();
    eventually("the end at the deadline", || async { Ok(bed.provider().describe(id).await?.is_none()) }).await
}

/// Seconds from now to `deadline`.
fn seconds_left(deadline: Option<Timestamp>) -> Checked<i64> {
    match deadline {
        Some(deadline) => Ok(deadline.as_second() - Timestamp::now().as_second()),
        None => fail("there is no deadline"),
    }
}

async fn expiry_destroys(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.create(bed.options()?.with_deadline(SHORT)).await?;
    ensure!(bed.provider().get(sandbox.id()).await?.is_some(), "it is gone at once");
    gone(bed, &*sandbox).await?;
    ensure!(!bed.provider().destroy(sandbox.id()).await?, "an expired sandbox could still be destroyed");
    Ok(())
}

async fn expiry_of_an_expired_is_not_listed(bed: &Bed<'_>) -> Checked {
    let (options, mark) = bed.marked_options()?;
    bed.create(options.with_deadline(SHORT)).await?;
    let query = Query::new().with_labels(mark);
    eventually("an empty listing", || async { Ok(bed.provider().list_all(query.clone()).await?.is_empty()) })
        .await
}

async fn expiry_ends_a_command_under_way(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.create(bed.options()?.with_deadline(SHORT)).await?;
    let command = sandbar_core::Command::shell("sleep 600");
    let run = sandbox.commands().run(&command);
    match tokio::time::timeout(crate::check::PATIENCE, run).await {
        Err(_) => fail("the command outlives the deadline"),
        Ok(Ok(output)) if output.status.is_success() => fail("the ended command is a success"),
        Ok(_) => Ok(()),
    }
}

async fn expiry_can_pause(bed: &Bed<'_>) -> Checked {
    let options = bed.options()?.with_deadline(SHORT).with_on_deadline(DeadlineAction::Pause);
    let sandbox = skip_unsupported(bed.create(options).await)?;
    sh(&*sandbox, "echo kept > /tmp/kept").await?;
    let look = || async { Ok(bed.describe(sandbox.id()).await?.state == State::Sleeping) };
    eventually("sleep at the deadline", look).await?;
    sandbox.wake().await?;
    ensure_eq!(sandbox.files().read(&at("/tmp/kept")?).await?, "kept\n", "the file");
    Ok(())
}

async fn woken_it_has_time_again(bed: &Bed<'_>) -> Checked {
    let options = bed.options()?.with_deadline(SHORT).with_on_deadline(DeadlineAction::Pause);
    let sandbox = skip_unsupported(bed.create(options).await)?;
    let look = || async { Ok(bed.describe(sandbox.id()).await?.state == State::Sleeping) };
    eventually("sleep at the deadline", look).await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.deadline, None, "the deadline of a sleeper that met it");
    sandbox.wake().await?;
    let left = seconds_left(bed.describe(sandbox.id()).await?.deadline)?;
    ensure!((1..=4).contains(&left), "it was given 4 s, and after a sleep {left} s are left");
    eventually("sleep at the next", look).await
}

async fn a_sleep_is_no_more_time_to_live(bed: &Bed<'_>) -> Checked {
    let sandbox = hour(bed).await?;
    let pausing = crate::check::part(sandbox.pausing(), &*sandbox, "pausing")?;
    let before = sandbox.record().await?.deadline;
    pausing.hibernate().await?;
    pausing.resume().await?;
    ensure_eq!(sandbox.record().await?.deadline, before, "the deadline of one that is destroyed at it");
    Ok(())
}

async fn set_makes_it_earlier(bed: &Bed<'_>) -> Checked {
    let sandbox = hour(bed).await?;
    let set = sandbox.set_deadline(Deadline::In(Duration::from_secs(600)), DeadlineMode::Set).await?;
    let left = seconds_left(set)?;
    ensure!((540..=660).contains(&left), "asked for 600 s, {left} s are left");
    Ok(())
}

async fn set_makes_it_later(bed: &Bed<'_>) -> Checked {
    let sandbox = hour(bed).await?;
    let left = seconds_left(sandbox.set_deadline(Deadline::In(LONG), DeadlineMode::Set).await?)?;
    ensure!((7100..=7300).contains(&left), "asked for 7200 s, {left} s are left");
    Ok(())
}

async fn extend_only_never_shortens(bed: &Bed<'_>) -> Checked {
    let sandbox = hour(bed).await?;
    let before = sandbox.record().await?.deadline;
    let set = sandbox.set_deadline(Deadline::In(Duration::from_secs(60)), DeadlineMode::ExtendOnly).await?;
    ensure_eq!(set, before, "the deadline answered");
    ensure_eq!(sandbox.record().await?.deadline, before, "the deadline in the record");
    Ok(())
}

async fn extend_only_extends(bed: &Bed<'_>) -> Checked {
    let sandbox = hour(bed).await?;
    let left = seconds_left(sandbox.set_deadline(Deadline::In(LONG), DeadlineMode::ExtendOnly).await?)?;
    ensure!((7100..=7300).contains(&left), "asked for 7200 s, {left} s are left");
    Ok(())
}

async fn never_removes_it(bed: &Bed<'_>) -> Checked {
    let sandbox = hour(bed).await?;
    let set = skip_unsupported(sandbox.set_deadline(Deadline::Never, DeadlineMode::Set).await)?;
    ensure_eq!(set, None, "the deadline answered");
    ensure_eq!(sandbox.record().await?.deadline, None, "the deadline in the record");
    // What has no end can't be given a later one.
    let extended = sandbox.set_deadline(Deadline::In(LONG), DeadlineMode::ExtendOnly).await?;
    ensure_eq!(extended, None, "an extension of no deadline");
    Ok(())
}

async fn at_a_time_is_kept(bed: &Bed<'_>) -> Checked {
    let sandbox = hour(bed).await?;
    let seconds = Timestamp::now().as_second() + 5000;
    let Ok(time) = Timestamp::from_second(seconds) else { return fail("no such time") };
    let set = sandbox.set_deadline(Deadline::At(time), DeadlineMode::Set).await?;
    let off = set.map(|set| (set.as_second() - seconds).abs());
    ensure!(off.is_some_and(|off| off <= 1), "asked for {time}, got {set:?}");
    Ok(())
}

async fn answer_is_the_one_in_force(bed: &Bed<'_>) -> Checked {
    let sandbox = hour(bed).await?;
    for (deadline, mode) in [
        (Deadline::In(LONG), DeadlineMode::Set),
        (Deadline::In(Duration::from_secs(60)), DeadlineMode::ExtendOnly),
        (Deadline::In(Duration::from_secs(300)), DeadlineMode::Set),
    ] {
        let answered = sandbox.set_deadline(deadline, mode).await?;
        ensure_eq!(sandbox.record().await?.deadline, answered, "the record's deadline");
    }
    Ok(())
}

async fn set_earlier_really_expires(bed: &Bed<'_>) -> Checked {
    let sandbox = hour(bed).await?;
    sandbox.set_deadline(Deadline::In(Duration::from_secs(1)), DeadlineMode::Set).await?;
    gone(bed, &*sandbox).await
}

async fn never_really_lives_on(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.create(bed.options()?.with_deadline(SHORT)).await?;
    skip_unsupported(sandbox.set_deadline(Deadline::Never, DeadlineMode::Set).await)?;
    tokio::time::sleep(SHORT + Duration::from_millis(500)).await;
    ensure!(
        bed.provider().describe(sandbox.id()).await?.is_some(),
        "it ended at a deadline that was removed"
    );
    Ok(())
}

async fn commands_do_not_extend_it(bed: &Bed<'_>) -> Checked {
    let sandbox = hour(bed).await?;
    let before = sandbox.record().await?.deadline;
    sh(&*sandbox, "sleep 0.05").await?;
    ensure!(before.is_some(), "the deadline asked for is not in the record");
    ensure_eq!(sandbox.record().await?.deadline, before, "deadline after a command");
    Ok(())
}

async fn action_can_be_changed(bed: &Bed<'_>) -> Checked {
    let sandbox = hour(bed).await?;
    let pausing = crate::check::part(sandbox.pausing(), &*sandbox, "pausing")?;
    pausing.set_deadline_action(DeadlineAction::Pause).await?;
    ensure_eq!(sandbox.record().await?.on_deadline, DeadlineAction::Pause, "the action");
    sandbox.set_deadline(Deadline::In(Duration::from_secs(1)), DeadlineMode::Set).await?;
    let look = || async { Ok(bed.describe(sandbox.id()).await?.state == State::Sleeping) };
    eventually("sleep at the deadline", look).await?;
    expect_error(
        sandbox.files().list(&at("/tmp")?).await,
        &[ErrorKind::Conflict],
        "files of a sleeping sandbox",
    )
    .map(drop)
}
