//! The deadline, with the shim and without it.

use std::time::{Duration, Instant};

use sandbar_core::{
    CreateOptions, Deadline, DeadlineMode, EndCause, ProviderExt, Query, SandboxProvider, State,
};

use crate::support::{Bed, agent_pid, create, eventually, is_alive, kill, shim_pid};

#[tokio::test]
async fn a_sandbox_is_destroyed_at_its_deadline() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let begun = Instant::now();
    let options = CreateOptions::new().with_deadline(Duration::from_millis(700));
    let sandbox = provider.create(options).await.expect("a sandbox");
    let record = sandbox.record().await.expect("a record");
    let lifetime = record.deadline.expect("a deadline").duration_since(record.started_at.expect("a start"));
    assert_eq!(lifetime.as_millis(), 700);
    eventually("it is gone", async || provider.describe(sandbox.id()).await.expect("an answer").is_none())
        .await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(700), "{took:?}");
    bed.assert_empty("after its deadline").await;
}

#[tokio::test]
async fn a_deadline_moves_and_goes_away() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let soon =
        sandbox.set_deadline(Deadline::In(Duration::from_secs(50)), DeadlineMode::Set).await.expect("set");
    let same = sandbox
        .set_deadline(Deadline::In(Duration::from_secs(20)), DeadlineMode::ExtendOnly)
        .await
        .expect("set");
    assert_eq!(soon, same, "extending never shortens");
    let never = sandbox.set_deadline(Deadline::Never, DeadlineMode::ExtendOnly).await.expect("set");
    // "Never" is later than any time.
    assert_eq!(never, None);
    assert_eq!(sandbox.record().await.expect("a record").deadline, None);
    let now = sandbox.set_deadline(Deadline::In(Duration::ZERO), DeadlineMode::Set).await.expect("set");
    assert!(now.is_some());
    eventually("it is gone", async || {
        bed.provider().describe(sandbox.id()).await.expect("an answer").is_none()
    })
    .await;
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn without_a_shim_the_agent_keeps_the_deadline_and_the_next_command_tidies_up() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let options = CreateOptions::new().with_deadline(Duration::from_secs(1));
    let sandbox = provider.create(options).await.expect("a sandbox");
    let id = sandbox.id().clone();
    let agent = agent_pid(&bed, &id);
    kill(shim_pid(&bed, &id).expect("a shim"));
    // The agent waits a little longer than the shim would have.
    eventually("the agent has ended itself", async || !is_alive(agent)).await;
    let listed = provider.list_all(Query::new()).await.expect("a listing");
    assert!(listed.iter().all(|record| record.state == State::Stopped), "{listed:?}");
    let record = provider.describe(&id).await.expect("an answer").expect("its record");
    assert!(record.reason.as_deref().is_some_and(|why| why.contains("its deadline passed")), "{record:?}");
    // Whenever it is tidied up: the time after its end is no life.
    let deadline = record.deadline.expect("a deadline");
    eventually("some time passed", async || jiff::Timestamp::now() > deadline + Duration::from_secs(3)).await;
    create(&provider).await.destroy().await.expect("destroyed");
    assert!(provider.describe(&id).await.expect("an answer").is_none());
    let used = provider.require_usage().expect("the part").ended(Some(&id)).await.expect("an answer").entries;
    assert_eq!(
        used.iter().map(|entry| (entry.cause, entry.ended_at)).collect::<Vec<_>>(),
        [(EndCause::Deadline, deadline)]
    );
    bed.assert_empty("after its deadline").await;
}

#[tokio::test]
async fn a_deadline_that_was_moved_reaches_the_agent() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let agent = agent_pid(&bed, sandbox.id());
    sandbox.set_deadline(Deadline::In(Duration::from_secs(1)), DeadlineMode::Set).await.expect("set");
    kill(shim_pid(&bed, sandbox.id()).expect("a shim"));
    eventually("the agent has ended itself", async || !is_alive(agent)).await;
    let _ = bed.provider().destroy(sandbox.id()).await.expect("an answer");
    bed.assert_empty("after it").await;
}
