use std::collections::BTreeMap;
use std::sync::Arc;

use sandbar_core::{
    ErrorKind, Limit, LimitDemand, LimitState, ResourceControl, Resources, Sandbox, SandboxExt,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, ensure, ensure_eq, expect_error, part, sh, skip_unsupported};

group!("resources";
    change_is_in_the_record, only_what_is_given_changes, limit_of_zero_is_invalid, no_limit_is_invalid,
    refused_change_changes_nothing, demand_is_kept_or_refused, memory_below_use_is_a_conflict,
    sandbox_works_after_a_change, of_a_gone_sandbox_is_not_found, of_a_sleeping_sandbox_is_a_conflict,
);

const SOME: Resources = Resources {
    memory_bytes: Some(256 << 20),
    cpu_millis: None,
    pids: Some(200),
    disk_bytes: Some(256 << 20),
};

/// A sandbox whose limits can be changed, or the reason to skip.
async fn sandbox(bed: &Bed<'_>) -> Checked<Arc<dyn Sandbox>> {
    let shared = bed.shared().await?;
    part(shared.resources(), &*shared, "resources")?;
    Ok(bed.create(bed.options()?.with_resources(SOME)).await?)
}

async fn limits(sandbox: &dyn Sandbox) -> Checked<BTreeMap<String, Limit>> {
    Ok(sandbox.record().await?.limits)
}

fn value(limits: &BTreeMap<String, Limit>, name: &str) -> Option<u64> {
    limits.get(name).and_then(|limit| limit.value)
}

/// Changes limits as well as the host can; what can't be changed here skips the case.
async fn set(sandbox: &dyn Sandbox, resources: Resources) -> Checked {
    let control: &dyn ResourceControl = sandbox.require_resources()?;
    skip_unsupported(control.set_resources(resources, LimitDemand::BestEffort).await)
}

async fn change_is_in_the_record(bed: &Bed<'_>) -> Checked {
    let sandbox = sandbox(bed).await?;
    for bytes in [512 << 20, 128 << 20] {
        set(&*sandbox, Resources::default().with_memory_bytes(bytes)).await?;
        ensure_eq!(value(&limits(&*sandbox).await?, "memory"), Some(bytes), "the memory limit");
    }
    Ok(())
}

async fn only_what_is_given_changes(bed: &Bed<'_>) -> Checked {
    let sandbox = sandbox(bed).await?;
    let mut expected = limits(&*sandbox).await?;
    set(&*sandbox, Resources::default().with_memory_bytes(300 << 20)).await?;
    if let Some(memory) = expected.get_mut("memory") {
        memory.value = Some(300 << 20);
    }
    ensure_eq!(limits(&*sandbox).await?, expected, "limits");
    Ok(())
}

async fn limit_of_zero_is_invalid(bed: &Bed<'_>) -> Checked {
    let sandbox = sandbox(bed).await?;
    let control = sandbox.require_resources()?;
    for zero in [
        Resources::default().with_memory_bytes(0),
        Resources::default().with_cpu_millis(0),
        Resources::default().with_pids(0),
        Resources::default().with_disk_bytes(0),
    ] {
        let changed = control.set_resources(zero, LimitDemand::BestEffort).await;
        expect_error(changed, &[ErrorKind::InvalidInput], "a limit of 0")?;
    }
    Ok(())
}

async fn no_limit_is_invalid(bed: &Bed<'_>) -> Checked {
    let sandbox = sandbox(bed).await?;
    let changed =
        sandbox.require_resources()?.set_resources(Resources::default(), LimitDemand::BestEffort).await;
    expect_error(changed, &[ErrorKind::InvalidInput], "a change of nothing").map(drop)
}

async fn refused_change_changes_nothing(bed: &Bed<'_>) -> Checked {
    let sandbox = sandbox(bed).await?;
    let before = limits(&*sandbox).await?;
    let half = Resources { memory_bytes: Some(400 << 20), pids: Some(0), ..Resources::default() };
    let changed = sandbox.require_resources()?.set_resources(half, LimitDemand::BestEffort).await;
    expect_error(changed, &[ErrorKind::InvalidInput], "half a change")?;
    ensure_eq!(limits(&*sandbox).await?, before, "limits after a refusal");
    Ok(())
}

async fn demand_is_kept_or_refused(bed: &Bed<'_>) -> Checked {
    let sandbox = sandbox(bed).await?;
    let before = limits(&*sandbox).await?;
    let control = sandbox.require_resources()?;
    for (name, resources) in [
        ("memory", Resources::default().with_memory_bytes(400 << 20)),
        ("pids", Resources::default().with_pids(300)),
    ] {
        match control.set_resources(resources, LimitDemand::Enforced).await {
            Ok(()) => {
                let state = limits(&*sandbox).await?.get(name).map(|limit| limit.state);
                ensure_eq!(state, Some(LimitState::Enforced), format!("what stands behind {name}"));
            }
            Err(error) => {
                ensure_eq!(error.kind(), ErrorKind::Unsupported, format!("refusal of {name}"));
                let after = limits(&*sandbox).await?;
                ensure_eq!(after.get(name), before.get(name), format!("{name} after a refusal"));
            }
        }
    }
    Ok(())
}

async fn memory_below_use_is_a_conflict(bed: &Bed<'_>) -> Checked {
    let sandbox = sandbox(bed).await?;
    let control = sandbox.require_resources()?;
    let used = match sandbox.metrics() {
        Some(metrics) => metrics.sample().await?.memory_bytes,
        None => None,
    };
    if used.is_none() {
        return crate::check::skip("memory is not measured here");
    }
    let before = limits(&*sandbox).await?;
    // Less than one page is less than any sandbox has.
    let changed =
        control.set_resources(Resources::default().with_memory_bytes(1), LimitDemand::BestEffort).await;
    expect_error(changed, &[ErrorKind::Conflict], "less memory than is used")?;
    ensure_eq!(limits(&*sandbox).await?, before, "limits after a refusal");
    sh(&*sandbox, "true").await.map(drop)
}

async fn sandbox_works_after_a_change(bed: &Bed<'_>) -> Checked {
    let sandbox = sandbox(bed).await?;
    set(&*sandbox, Resources::default().with_memory_bytes(512 << 20)).await?;
    ensure_eq!(sh(&*sandbox, "echo on").await?.stdout_lossy(), "on\n", "a command after it");
    Ok(())
}

async fn of_a_gone_sandbox_is_not_found(bed: &Bed<'_>) -> Checked {
    let sandbox = sandbox(bed).await?;
    sandbox.destroy().await?;
    let more = Resources::default().with_memory_bytes(512 << 20);
    let changed = sandbox.require_resources()?.set_resources(more, LimitDemand::BestEffort).await;
    expect_error(changed, &[ErrorKind::NotFound], "a change in a gone sandbox").map(drop)
}

async fn of_a_sleeping_sandbox_is_a_conflict(bed: &Bed<'_>) -> Checked {
    let shared = bed.shared().await?;
    part(shared.resources(), &*shared, "resources")?;
    let sandbox = bed.sleeper().await?;
    let more = Resources::default().with_memory_bytes(512 << 20);
    let changed = sandbox.require_resources()?.set_resources(more, LimitDemand::BestEffort).await;
    let error = expect_error(changed, &[ErrorKind::Conflict], "a change while it sleeps")?;
    ensure!(error.state().is_some(), "the conflict names no state");
    Ok(())
}
