//! What is written down of sandboxes that ended, whoever ended them.

use sandbar_core::{Command, EndCause, ProviderExt, Sandbox, State, UsageEntry};

use crate::support::{Bed, agent_pid, create, end_shim, eventually, kill, shim_pid};

async fn entries(bed: &Bed, sandbox: &dyn Sandbox) -> Vec<UsageEntry> {
    let provider = bed.provider();
    provider.require_usage().expect("the part").ended(Some(sandbox.id())).await.expect("an answer").entries
}

#[tokio::test]
async fn an_agent_that_dies_is_written_down_once() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    kill(agent_pid(&bed, sandbox.id()));
    eventually("it stopped", async || sandbox.record().await.expect("a record").state == State::Stopped)
        .await;
    eventually("it is written down", async || entries(&bed, &*sandbox).await.len() == 1).await;
    sandbox.destroy().await.expect("destroyed");
    let entries = entries(&bed, &*sandbox).await;
    assert_eq!(entries.iter().map(|entry| entry.cause).collect::<Vec<_>>(), [EndCause::Died]);
}

#[tokio::test]
async fn without_a_shim_whoever_destroys_it_writes_it_down() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    sandbox
        .commands()
        .run(&Command::shell("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"))
        .await
        .expect("work");
    let in_group = sandbar_engine::Host::observe().cgroups.offers(sandbar_engine::cgroup::Controller::Memory);
    end_shim(&bed, sandbox.id()).await;
    sandbox.destroy().await.expect("destroyed");
    let found = entries(&bed, &*sandbox).await;
    let [entry] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(entry.cause, EndCause::Destroyed);
    assert!(!in_group || entry.memory_peak_bytes.is_some_and(|bytes| bytes > 100_000), "{entry:?}");
    assert!(entry.cpu_seconds.is_none_or(|seconds| seconds > 0.0), "{entry:?}");

    let other = create(&bed.provider()).await;
    let agent = agent_pid(&bed, other.id());
    kill(shim_pid(&bed, other.id()).expect("a shim"));
    kill(agent);
    eventually("nobody is left", async || other.record().await.expect("a record").state == State::Stopped)
        .await;
    other.destroy().await.expect("destroyed");
    assert_eq!(entries(&bed, &*other).await[0].cause, EndCause::Unknown, "nobody saw what ended it");
}
