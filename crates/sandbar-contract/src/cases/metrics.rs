use sandbar_core::{FilesExt, SandboxExt, Signal, SpawnOptions};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, part};

group!("metrics";
    are_of_now, unmeasured_is_absent_not_zero, processes_are_counted, disk_use_grows, capacity_is_absent_not_zero,
);

async fn are_of_now(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let sample = part(sandbox.metrics(), &*sandbox, "metrics")?.sample().await?;
    let off = (jiff::Timestamp::now().as_second() - sample.at.as_second()).abs();
    ensure!(off < 120, "the sample is {off} s off");
    Ok(())
}

async fn unmeasured_is_absent_not_zero(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let sample = part(sandbox.metrics(), &*sandbox, "metrics")?.sample().await?;
    for (what, value) in [
        ("memory", sample.memory_bytes),
        ("peak memory", sample.memory_peak_bytes),
        ("memory limit", sample.memory_limit_bytes),
    ] {
        ensure!(value != Some(0), "{what} is 0, which no sandbox that runs has");
    }
    ensure!(sample.cpu_count != Some(0.0), "it may use 0 cores");
    ensure!(sample.cpu_seconds.is_none_or(|seconds| seconds >= 0.0), "negative processor time");
    Ok(())
}

async fn processes_are_counted(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let metrics = part(sandbox.metrics(), &*sandbox, "metrics")?;
    let processes = part(sandbox.processes(), &*sandbox, "processes")?;
    let before = metrics.sample().await?.processes;
    let command = sandbar_core::Command::new("sleep").arg("600");
    let process = processes.spawn(&command, SpawnOptions::new()).await?;
    let after = metrics.sample().await?.processes;
    process.control.signal(Signal::KILL).await?;
    if let (Some(before), Some(after)) = (before, after) {
        ensure!(after > before, "{before} processes before a spawn and {after} after it");
    }
    Ok(())
}

async fn disk_use_grows(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    sandbox.require_metrics().or_else(|error| crate::check::skip(error.message()))?;
    let metrics = sandbox.require_metrics()?;
    let before = metrics.sample().await?.disk_bytes;
    sandbox.files().write(&at("/tmp/file")?, vec![1; 2_000_000].into()).await?;
    let after = metrics.sample().await?.disk_bytes;
    if let (Some(before), Some(after)) = (before, after) {
        ensure!(after >= before, "{before} bytes before a write and {after} after it");
    }
    Ok(())
}

async fn capacity_is_absent_not_zero(bed: &Bed<'_>) -> Checked {
    let provider = bed.provider();
    let capacity = crate::check::provider_part(provider.capacity(), provider, "capacity")?.measure().await?;
    for (what, value) in [("memory", capacity.memory_bytes), ("inodes", capacity.inodes)] {
        ensure!(value != Some(0), "{what}: 0 where a sandbox could be made");
    }
    let unmeasured = capacity.disk_bytes.is_none() || capacity.memory_bytes.is_none();
    ensure!(!unmeasured || !capacity.detail.is_empty(), "what was not measured is not named");
    Ok(())
}
