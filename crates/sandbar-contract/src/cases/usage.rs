use std::time::Duration;

use sandbar_core::{
    Command, EndCause, MainCommand, ProviderExt, SandboxId, SandboxProvider, UsageEntry, UsageHistory,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, ensure, ensure_eq, eventually, fail, provider_part};

group!("usage";
    living_sandbox_has_none, destroyed_sandbox_has_one_entry, entry_is_what_it_was, deadline_is_the_cause,
    failed_create_has_none, holds_all_if_none_is_named, unmeasured_is_absent_not_zero,
);

async fn entries(provider: &dyn SandboxProvider, id: &SandboxId) -> Checked<Vec<UsageEntry>> {
    let usage: &dyn UsageHistory = provider_part(provider.usage(), provider, "usage")?;
    let report = usage.ended(Some(id)).await?;
    ensure!(report.entries.iter().all(|entry| entry.id == *id), "entries of another sandbox");
    Ok(report.entries)
}

async fn the_one(provider: &dyn SandboxProvider, id: &SandboxId) -> Checked<UsageEntry> {
    match entries(provider, id).await?.as_slice() {
        [entry] => Ok(entry.clone()),
        many => fail(format!("{} entries of a sandbox that ended once", many.len())),
    }
}

async fn living_sandbox_has_none(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    ensure!(entries(bed.provider(), sandbox.id()).await?.is_empty(), "a sandbox that lives has ended");
    Ok(())
}

async fn destroyed_sandbox_has_one_entry(bed: &Bed<'_>) -> Checked {
    let provider = bed.provider();
    provider_part(provider.usage(), provider, "usage")?;
    let sandbox = bed.fresh().await?;
    sandbox.destroy().await?;
    ensure_eq!(the_one(provider, sandbox.id()).await?.cause, EndCause::Destroyed, "cause");
    sandbox.destroy().await?;
    the_one(provider, sandbox.id()).await.map(drop)
}

async fn entry_is_what_it_was(bed: &Bed<'_>) -> Checked {
    let provider = bed.provider();
    provider_part(provider.usage(), provider, "usage")?;
    let name = bed.name()?;
    let sandbox = bed.create(bed.options()?.with_name(name.clone())).await?;
    let record = sandbox.record().await?;
    sandbox.destroy().await?;
    let entry = the_one(provider, sandbox.id()).await?;
    ensure_eq!(entry.name, Some(name), "name");
    ensure_eq!(entry.version, UsageEntry::VERSION, "version");
    ensure!(record.created_at.is_none_or(|at| at == entry.created_at), "made at another time: {entry:?}");
    ensure!(entry.started_at >= entry.created_at && entry.ended_at >= entry.started_at, "{entry:?}");
    let wall = entry.ended_at.duration_since(entry.started_at).as_secs_f64();
    let agrees = (entry.wall_seconds - wall).abs() < 0.01;
    ensure!(agrees, "{} s between times of {wall} s", entry.wall_seconds);
    Ok(())
}

async fn deadline_is_the_cause(bed: &Bed<'_>) -> Checked {
    let provider = bed.provider();
    provider_part(provider.usage(), provider, "usage")?;
    let sandbox = bed.create(bed.options()?.with_deadline(Duration::from_millis(300))).await?;
    eventually("its end", || async { Ok(provider.get(sandbox.id()).await?.is_none()) }).await?;
    ensure_eq!(the_one(provider, sandbox.id()).await?.cause, EndCause::Deadline, "cause");
    Ok(())
}

async fn failed_create_has_none(bed: &Bed<'_>) -> Checked {
    let provider = bed.provider();
    let usage = provider_part(provider.usage(), provider, "usage")?;
    let name = bed.name()?;
    let main = MainCommand::new(Command::new("/no/such/program"));
    let created = bed.create(bed.options()?.with_name(name.clone()).with_main(main)).await;
    ensure!(created.is_err(), "a main command that does not exist was started");
    let report = usage.ended(None).await?;
    ensure!(report.entries.iter().all(|entry| entry.name.as_ref() != Some(&name)), "it was never there");
    Ok(())
}

async fn holds_all_if_none_is_named(bed: &Bed<'_>) -> Checked {
    let provider = bed.provider();
    let usage = provider_part(provider.usage(), provider, "usage")?;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let sandbox = bed.fresh().await?;
        sandbox.destroy().await?;
        ids.push(sandbox.id().clone());
    }
    let all = usage.ended(None).await?.entries;
    let places: Vec<_> = ids.iter().map(|id| all.iter().position(|entry| entry.id == *id)).collect();
    ensure!(places[0].is_some() && places[0] < places[1], "not all, or not oldest first: {places:?}");
    Ok(())
}

async fn unmeasured_is_absent_not_zero(bed: &Bed<'_>) -> Checked {
    let provider = bed.provider();
    provider_part(provider.usage(), provider, "usage")?;
    let sandbox = bed.fresh().await?;
    sandbox.destroy().await?;
    let entry = the_one(provider, sandbox.id()).await?;
    ensure!(entry.memory_peak_bytes != Some(0), "no memory, which no sandbox that ran had");
    ensure!(entry.cpu_seconds.is_none_or(|seconds| seconds > 0.0), "no processor time at all");
    Ok(())
}
