//! Looks at all sandboxes again and again: what those that run use, which were paused by their deadline, and which are gone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use sandbar_core::{ErrorKind, ProviderExt as _, Query, Result, Sandbox, SandboxId, SandboxRecord, State};
use tokio::time::MissedTickBehavior;

use super::answer::{host_cpus, started_at};
use crate::app::App;
use crate::known::marked;
use crate::marks::Marks;
use crate::store::{Event, Sample};

/// How often sandboxes are looked at: the least that E2B's metrics tell apart.
const EVERY: Duration = Duration::from_secs(5);

/// After how many looks what is remembered of sandboxes that are gone is forgotten: once a minute.
const SWEEP_EVERY: u32 = 12;

/// How long one may take to answer: less than there is until the next look.
const ANSWER: Duration = Duration::from_secs(4);

/// How many are asked at a time: enough for hundreds within a look, and few enough not to be noticed.
const AT_ONCE: usize = 8;

/// Processor seconds that were used until a time in Unix milliseconds.
type Used = (i64, f64);

/// Runs until it is dropped.
pub(crate) async fn run(app: Arc<App>) {
    let mut memory = Memory::default();
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut count = 0_u32;
    loop {
        ticks.tick().await;
        // Errors pass: the next look is soon.
        if let Err(error) = memory.round(&app, count.is_multiple_of(SWEEP_EVERY)).await {
            tracing::warn!(error = %error, "sandboxes could not be sampled");
        }
        count = count.wrapping_add(1);
    }
}

/// What was seen in the look before.
#[derive(Debug, Default)]
struct Memory {
    used: HashMap<SandboxId, Used>,
    asleep: HashSet<SandboxId>,
}

impl Memory {
    async fn round(&mut self, app: &Arc<App>, sweeps: bool) -> Result<()> {
        let listed_at = Timestamp::now().as_millisecond();
        let look = app.admissions.look();
        let records = app.provider.list_all(Query::new()).await?;
        app.admissions.looked(look, marked(&records));
        app.owners.found(marked(&records));
        let own: Vec<_> = records.iter().filter(|record| Marks::of(record).is_some()).collect();
        self.note_turns(app, &own).await?;
        self.sample(app, &own).await?;
        if sweeps {
            let alive = records.iter().map(|record| record.id.to_string()).collect();
            app.store.sweep(alive, listed_at).await?;
        }
        Ok(())
    }

    /// A deadline pauses without the server, and a request resumes without the control plane.
    async fn note_turns(&mut self, app: &App, own: &[&SandboxRecord]) -> Result<()> {
        let asleep: HashSet<_> = own
            .iter()
            .filter(|record| record.state == State::Sleeping)
            .map(|record| record.id.clone())
            .collect();
        let new: Vec<_> = asleep.difference(&self.asleep).cloned().collect();
        let noted = app.store.turns(new.iter().map(ToString::to_string).collect()).await?;
        for id in new {
            if noted.get(id.as_str()).is_some_and(|(is_asleep, _)| *is_asleep) {
                continue;
            }
            // By its turn: a pause that is under way notes itself.
            let _turn = app.turns.take(id.as_str()).await;
            let record = app.provider.describe(&id).await?;
            let is_asleep = record.is_some_and(|record| record.state == State::Sleeping);
            if is_asleep && !is_noted(app, &id).await? {
                app.store.note(&id, Event::Paused).await?;
            }
        }
        // A request may have woken one.
        let woken: Vec<_> = own
            .iter()
            .filter(|record| record.state == State::Running && self.asleep.contains(&record.id))
            .map(|record| &record.id)
            .collect();
        for id in woken {
            let _turn = app.turns.take(id.as_str()).await;
            let record = app.provider.describe(id).await?;
            let runs = record.is_some_and(|record| record.state == State::Running);
            if runs && is_noted(app, id).await? {
                app.store.note(id, Event::Resumed).await?;
            }
        }
        self.asleep = asleep;
        Ok(())
    }

    async fn sample(&mut self, app: &Arc<App>, own: &[&SandboxRecord]) -> Result<()> {
        let running = own.iter().filter(|record| record.state == State::Running);
        let looks = running.map(|record| {
            let (app, before) = (Arc::clone(app), self.used.get(&record.id).copied());
            let record = (*record).clone();
            async move {
                let looked = tokio::time::timeout(ANSWER, look_by_id(&app, &record, before)).await;
                let looked = looked.ok()?.ok()??;
                Some((record.id, looked))
            }
        });
        let seen: Vec<_> =
            futures::stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await;
        let seen: Vec<_> = seen.into_iter().flatten().collect();
        self.used = seen.iter().filter_map(|(id, (_, used))| Some((id.clone(), (*used)?))).collect();
        if seen.is_empty() {
            return Ok(());
        }
        app.store
            .add_samples(seen.into_iter().map(|(id, (sample, _))| (id.to_string(), sample)).collect())
            .await
    }
}

/// Whether the last that was noted of it is that it sleeps.
async fn is_noted(app: &App, id: &SandboxId) -> Result<bool> {
    let turns = app.store.turns(vec![id.to_string()]).await?;
    Ok(turns.get(id.as_str()).is_some_and(|(is_asleep, _)| *is_asleep))
}

async fn look_by_id(
    app: &App,
    record: &SandboxRecord,
    before: Option<Used>,
) -> Result<Option<(Sample, Option<Used>)>> {
    match app.provider.get(&record.id).await? {
        Some(sandbox) => look(&*sandbox, record, before).await,
        None => Ok(None),
    }
}

/// What one uses now, with its load since `before` or since it was started. `None` if nothing can be measured, or if it is gone or asleep by now.
pub(super) async fn look(
    sandbox: &dyn Sandbox,
    record: &SandboxRecord,
    before: Option<Used>,
) -> Result<Option<(Sample, Option<Used>)>> {
    let Some(metrics) = sandbox.metrics() else { return Ok(None) };
    let seen = match metrics.sample().await {
        Ok(seen) => seen,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict) => return Ok(None),
        Err(error) => return Err(error),
    };
    let at = seen.at.as_millisecond();
    let limit = |name: &str| record.limits.get(name).and_then(|limit| limit.value);
    let cores = seen.cpu_count.unwrap_or_else(|| f64::from(host_cpus())).max(f64::MIN_POSITIVE);
    let (since, used) = before.unwrap_or_else(|| (started_at(record).as_millisecond(), 0.0));
    let cpu_pct = seen.cpu_seconds.map_or(0.0, |now| load(now - used, at - since, cores));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of cores")]
    let cpu_count = cores.ceil() as u32;
    let sample = Sample {
        at,
        cpu_count: cpu_count.max(1),
        cpu_pct,
        mem_used: seen.memory_bytes.unwrap_or_default(),
        mem_total: seen.memory_limit_bytes.or_else(|| limit("memory")).unwrap_or_default(),
        mem_cache: 0,
        disk_used: seen.disk_bytes.unwrap_or_default(),
        disk_total: limit("disk").unwrap_or_default(),
    };
    Ok(Some((sample, seen.cpu_seconds.map(|used| (at, used)))))
}

/// Percent of all cores together, to two decimals.
#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more precision")]
fn load(seconds: f64, millis: i64, cores: f64) -> f64 {
    if millis <= 0 {
        return 0.0;
    }
    let share = seconds.max(0.0) * 1000.0 / millis as f64 / cores;
    (share.min(1.0) * 10_000.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_a_share_of_all_cores() {
        assert!((load(1.0, 5000, 2.0) - 10.0).abs() < f64::EPSILON);
        assert!((load(99.0, 5000, 2.0) - 100.0).abs() < f64::EPSILON);
        assert!(load(-1.0, 5000, 2.0).abs() < f64::EPSILON && load(1.0, 0, 2.0).abs() < f64::EPSILON);
    }
}
