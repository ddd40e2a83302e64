//! Limits that change: their effect, and that they outlive a shim.

use sandbar_core::{
    Command, CreateOptions, ErrorKind, LimitDemand, LimitState, Resources, Sandbox, SandboxExt,
    SandboxProvider,
};

use crate::support::{Bed, end_shim};

async fn set(sandbox: &dyn Sandbox, resources: Resources) -> sandbar_core::Result<()> {
    sandbox.require_resources().expect("the part").set_resources(resources, LimitDemand::BestEffort).await
}

async fn run(sandbox: &dyn Sandbox, script: &str) -> sandbar_core::Output {
    sandbox.commands().run(&Command::shell(script)).await.expect("an output")
}

/// Holds 140 MB at once.
const HOG: &str = "head -c 150000000 /dev/zero | tail -c 140000000 | wc -c";

#[tokio::test]
async fn memory_takes_effect_in_both_directions_and_outlives_a_shim() {
    let Some(bed) = Bed::new() else { return };
    let small = Resources::default().with_memory_bytes(64 << 20);
    let sandbox = bed.provider().create(CreateOptions::new().with_resources(small)).await.expect("a sandbox");
    let enforced = sandbox.record().await.expect("a record").limits["memory"].state == LimitState::Enforced;
    if enforced {
        assert_ne!(run(&*sandbox, HOG).await.stdout_lossy(), "140000000\n", "64 MiB hold 140 MB");
    }
    // The shim that is asked need not be the one that made it.
    end_shim(&bed, sandbox.id()).await;
    set(&*sandbox, Resources::default().with_memory_bytes(512 << 20)).await.expect("more");
    assert_eq!(run(&*sandbox, HOG).await.stdout_lossy(), "140000000\n");
    end_shim(&bed, sandbox.id()).await;
    set(&*sandbox, Resources::default().with_memory_bytes(64 << 20)).await.expect("less");
    assert_eq!(sandbox.record().await.expect("a record").limits["memory"].value, Some(64 << 20));
    if enforced {
        assert_ne!(run(&*sandbox, HOG).await.stdout_lossy(), "140000000\n", "64 MiB hold 140 MB again");
    }
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the changes").await;
}

#[tokio::test]
async fn processes_and_processor_change_where_a_group_holds_them() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = bed.provider().create(CreateOptions::new()).await.expect("a sandbox");
    let offers = |controller| sandbar_engine::Host::observe().cgroups.offers(controller);
    for (name, change, offered) in [
        ("pids", Resources::default().with_pids(64), offers(sandbar_engine::cgroup::Controller::Pids)),
        ("cpu", Resources::default().with_cpu_millis(500), offers(sandbar_engine::cgroup::Controller::Cpu)),
    ] {
        let before = sandbox.record().await.expect("a record").limits;
        match set(&*sandbox, change).await {
            Ok(()) => {
                assert!(offered, "{name}");
                let now = sandbox.record().await.expect("a record").limits[name];
                assert_eq!((now.value.is_some(), now.state), (true, LimitState::Enforced), "{name}");
            }
            Err(error) => {
                assert!(!offered, "{name}: {error:?}");
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
                assert!(error.hint().is_some() && error.feature().is_some(), "{error:?}");
                assert_eq!(sandbox.record().await.expect("a record").limits, before, "{name}");
            }
        }
    }
    if offers(sandbar_engine::cgroup::Controller::Pids) {
        let script = "i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done 2>/dev/null; jobs -p | wc -l; kill $(jobs -p)";
        let started = run(&*sandbox, script).await;
        let count: u32 = started.stdout_lossy().trim().parse().unwrap_or(0);
        assert!(count < 64, "{count} processes with a limit of 64");
    }
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn disk_below_use_is_refused_and_more_is_room_for_more() {
    let Some(bed) = Bed::new() else { return };
    let small = Resources::default().with_disk_bytes(8 << 20);
    let sandbox = bed.provider().create(CreateOptions::new().with_resources(small)).await.expect("a sandbox");
    run(&*sandbox, "head -c 4000000 /dev/zero > /tmp/file").await;
    let error = set(&*sandbox, Resources::default().with_disk_bytes(1 << 20)).await.expect_err("too little");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    assert_eq!(sandbox.record().await.expect("a record").limits["disk"].value, Some(8 << 20));
    set(&*sandbox, Resources::default().with_disk_bytes(6 << 20)).await.expect("less, and enough");
    match set(&*sandbox, Resources::default().with_disk_bytes(64 << 20)).await {
        Ok(()) => {
            let output = run(&*sandbox, "head -c 20000000 /dev/zero > /tmp/big; stat -c %s /tmp/big").await;
            assert_eq!(output.stdout_lossy(), "20000000\n", "one file may be larger than the first limit");
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
            assert_eq!(sandbox.record().await.expect("a record").limits["disk"].value, Some(6 << 20));
            // Back up to what it was made with is always possible.
            set(&*sandbox, Resources::default().with_disk_bytes(8 << 20)).await.expect("as before");
        }
    }
    sandbox.destroy().await.expect("destroyed");
}
