//! Limits: what is enforced hurts its own sandbox only, what is watched is acted upon, and the record says which and what happened.

use std::time::{Duration, Instant};

use sandbar_core::{
    Command, CreateOptions, ErrorKind, ExitStatus, KillCause, LimitDemand, LimitState, Output, Resources,
    RunOptions, Sandbox, SandboxExt, SandboxProvider,
};

use crate::support::{Bed, agent_pid, create, descendants, eventually};

async fn run(sandbox: &dyn Sandbox, script: &str) -> Output {
    let options = RunOptions::default().with_timeout(Duration::from_secs(60));
    sandbox.commands().run_opts(&Command::shell(script), options).await.expect("an output")
}

/// A program that takes memory until something stops it. Written in what every sandbox has.
const MEMORY_BOMB: &str = "exec tail /dev/zero";

#[tokio::test]
async fn a_memory_bomb_is_ended_and_named() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let small = Resources::default().with_memory_bytes(96 << 20);
    let sandbox = provider.create(CreateOptions::new().with_resources(small)).await.expect("a sandbox");
    let neighbour = create(&provider).await;
    let limit = sandbox.record().await.expect("a record").limits["memory"];
    assert_eq!(limit.value, Some(96 << 20));
    assert_ne!(limit.state, LimitState::None);
    let output = run(&*sandbox, MEMORY_BOMB).await;
    assert_eq!((output.status, output.cause), (ExitStatus::Signal(9), Some(KillCause::Oom)), "{output:?}");
    let record = sandbox.record().await.expect("a record");
    assert_eq!(record.last_kill.expect("it is noted").cause, KillCause::Oom);
    assert!(record.limits["memory"].hits.is_some_and(|hits| hits > 0));
    // The sandbox lives on, and so does its neighbour; what is killed by hand has no such cause.
    assert_eq!(run(&*sandbox, "echo on").await.stdout_lossy(), "on\n");
    assert_eq!(run(&*neighbour, "echo on").await.stdout_lossy(), "on\n");
    let output = run(&*neighbour, "kill -9 $$").await;
    assert_eq!((output.status, output.cause), (ExitStatus::Signal(9), None));
    sandbox.destroy().await.expect("destroyed");
    neighbour.destroy().await.expect("destroyed");
    bed.assert_empty("after the bomb").await;
}

#[tokio::test]
async fn a_fork_bomb_stays_inside() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let few = Resources::default().with_pids(64);
    let sandbox = provider.create(CreateOptions::new().with_resources(few)).await.expect("a sandbox");
    let neighbour = create(&provider).await;
    let limit = sandbox.record().await.expect("a record").limits["pids"];
    assert_eq!(limit.value, Some(64));
    let bomb = "i=0; while [ $i -lt 200 ]; do sleep 2 & i=$((i+1)); done; wait";
    let begun = Instant::now();
    let _ = run(&*sandbox, bomb).await;
    assert!(begun.elapsed() < Duration::from_secs(50));
    assert_eq!(run(&*neighbour, "echo on").await.stdout_lossy(), "on\n");
    eventually("it is usable again", async || {
        let again = sandbox.commands().run(&Command::new("echo").arg("on")).await;
        again.is_ok_and(|output| output.stdout_lossy() == "on\n")
    })
    .await;
    if provider_counts_pids() {
        eventually("it is noted", async || {
            let record = sandbox.record().await.expect("a record");
            record.limits["pids"].hits.is_some_and(|hits| hits > 0)
                && record.last_kill.is_some_and(|kill| kill.cause == KillCause::Pids)
        })
        .await;
    }
    sandbox.destroy().await.expect("destroyed");
    neighbour.destroy().await.expect("destroyed");
    bed.assert_empty("after the bomb").await;
}

fn provider_counts_pids() -> bool {
    sandbar_engine::Host::observe().cgroups.offers(sandbar_engine::cgroup::Controller::Pids)
}

#[tokio::test]
async fn a_disk_filler_is_ended_and_named() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let small = Resources::default().with_disk_bytes(64 << 20);
    let sandbox = provider.create(CreateOptions::new().with_resources(small)).await.expect("a sandbox");
    assert_eq!(sandbox.record().await.expect("a record").limits["disk"].state, LimitState::Watched);
    // Many files: one alone would run into the limit on its size.
    let filler = "i=0; while true; do head -c 8388608 /dev/zero > f$i || exit 3; i=$((i+1)); sleep 0.1; done";
    let output = run(&*sandbox, filler).await;
    assert_eq!((output.status, output.cause), (ExitStatus::Signal(9), Some(KillCause::Disk)), "{output:?}");
    let record = sandbox.record().await.expect("a record");
    assert_eq!(record.last_kill.expect("it is noted").cause, KillCause::Disk);
    assert!(record.limits["disk"].hits.is_some_and(|hits| hits > 0));
    let metrics = sandbox.require_metrics().expect("metrics").sample().await.expect("a sample");
    assert!(metrics.disk_bytes.is_some_and(|bytes| bytes > 64 << 20), "{metrics:?}");
    // Making room helps.
    assert_eq!(run(&*sandbox, "rm -f f*; echo on").await.stdout_lossy(), "on\n");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the filler").await;
}

#[tokio::test]
async fn one_file_can_not_be_larger_than_the_disk() {
    let Some(bed) = Bed::new() else { return };
    let small = Resources::default().with_disk_bytes(4 << 20);
    let sandbox = bed.provider().create(CreateOptions::new().with_resources(small)).await.expect("a sandbox");
    let output = run(&*sandbox, "head -c 100000000 /dev/zero > big; stat -c %s big").await;
    assert_eq!(output.stdout_lossy(), format!("{}\n", 4 << 20));
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn a_demand_is_kept_or_refused() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let offers = |controller| sandbar_engine::Host::observe().cgroups.offers(controller);
    let memory = Resources::default().with_memory_bytes(128 << 20);
    let cpu = Resources::default().with_cpu_millis(500);
    for (name, resources, enforced) in [
        ("memory", memory, offers(sandbar_engine::cgroup::Controller::Memory)),
        ("cpu", cpu, offers(sandbar_engine::cgroup::Controller::Cpu)),
    ] {
        let options = CreateOptions::new().with_resources(resources).with_limit_demand(LimitDemand::Enforced);
        match provider.create(options).await {
            Ok(sandbox) => {
                assert!(enforced, "{name}");
                assert_eq!(
                    sandbox.record().await.expect("a record").limits[name].state,
                    LimitState::Enforced
                );
                sandbox.destroy().await.expect("destroyed");
            }
            Err(error) => {
                assert!(!enforced, "{name}: {error:?}");
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(
                    // Memory is demanded with the rest.
                    error
                        .feature()
                        .is_some_and(|feature| feature.contains(name) || feature.contains("memory"))
                        && error.hint().is_some(),
                    "{error:?}"
                );
            }
        }
    }
    bed.assert_empty("after the demands").await;
}

#[tokio::test]
async fn a_timeout_ends_the_tree_and_keeps_the_output() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let options = RunOptions::default().with_timeout(Duration::from_millis(600));
    let script = "echo begun; (setsid sleep 4711 &); sleep 4711";
    let begun = Instant::now();
    let error = sandbox.commands().run_opts(&Command::shell(script), options).await.expect_err("no end");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let partial = error.partial().expect("partial output");
    assert_eq!((&partial.stdout[..], partial.ended), (&b"begun\n"[..], Some(true)));
    let agent = agent_pid(&bed, sandbox.id());
    eventually("nothing of it runs", async || {
        descendants(agent).iter().all(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            !line.contains("4711")
        })
    })
    .await;
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn metrics_are_measured_or_absent() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    run(&*sandbox, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; head -c 3000000 /dev/zero > file")
        .await;
    let sample = sandbox.require_metrics().expect("metrics").sample().await.expect("a sample");
    assert!(sample.memory_bytes.is_some_and(|bytes| bytes > 100_000), "{sample:?}");
    assert!(sample.processes.is_some_and(|count| count >= 1), "{sample:?}");
    assert!(sample.disk_bytes.is_some_and(|bytes| bytes >= 3_000_000), "{sample:?}");
    assert_eq!(sample.memory_limit_bytes, Some(sandbar_local::DEFAULT_MEMORY));
    assert!(sample.cpu_seconds.is_none_or(|seconds| seconds > 0.0), "{sample:?}");
    sandbox.destroy().await.expect("destroyed");
}
