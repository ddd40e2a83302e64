use std::collections::HashMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use sandbar::{
    Error, ErrorKind, MetricsSample, ProviderExt, Query, SandboxExt, SandboxId, SandboxProvider, State,
};
use tokio::time::{MissedTickBehavior, interval};

use crate::commands::interrupt::or_interrupt;
use crate::commands::resolve::{absent, require};
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Measured, Printer, StatsJson, print_bytes, print_json, print_json_line, stats_table};
use crate::settings::StatsSettings;
use crate::signals::Signals;

/// Sandboxes measured at once: each measurement is a question to another process.
const AT_ONCE: usize = 16;

pub(crate) async fn stats(
    provider: &dyn SandboxProvider,
    settings: StatsSettings,
    printer: Printer,
) -> Result<ExitStatus> {
    let StatsSettings { id, interval } = settings;
    match interval {
        None => once(provider, id.as_deref(), printer).await,
        Some(every) => watch(provider, id.as_deref(), every, printer).await,
    }
}

async fn once(provider: &dyn SandboxProvider, id: Option<&str>, printer: Printer) -> Result<ExitStatus> {
    let Round { measured, failed } = printer.progress("measuring", round(provider, id)).await?;
    if printer.json() {
        print_json(&StatsJson::new(&measured))?;
    } else {
        print_bytes(stats_table(&measured, false).as_bytes())?;
    }
    for error in &failed {
        printer.error(error);
    }
    Ok(if failed.is_empty() { ExitStatus::Done } else { ExitStatus::Failed })
}

/// Measures until somebody asks us to end, or the one sandbox is gone.
async fn watch(
    provider: &dyn SandboxProvider,
    id: Option<&str>,
    every: Duration,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: HashMap<SandboxId, (Timestamp, f64)> = HashMap::new();
    loop {
        let next = async {
            ticks.tick().await;
            round(provider, id).await
        };
        let Round { mut measured, failed } = match or_interrupt(&mut signals, next).await {
            // The usual way to stop watching is no mishap to be told of.
            Err(Failure { status: status @ ExitStatus::Interrupted(_), .. }) => return Ok(status),
            round => round?,
        };
        for one in &mut measured {
            one.share = before.get(&one.id).and_then(|before| share(*before, &one.sample));
        }
        // Those that are gone are forgotten with this.
        before = measured
            .iter()
            .filter_map(|one| Some((one.id.clone(), (one.sample.at, one.sample.cpu_seconds?))))
            .collect();
        if printer.json() {
            print_json_line(&StatsJson::new(&measured))?;
        } else {
            let table = stats_table(&measured, true);
            print_bytes(printer.screen(&table).as_bytes())?;
        }
        for error in &failed {
            printer.error(error);
        }
    }
}

/// What was measured, and what could not be.
struct Round {
    measured: Vec<Measured>,
    failed: Vec<Error>,
}

async fn round(provider: &dyn SandboxProvider, id: Option<&str>) -> Result<Round> {
    if let Some(id) = id {
        let sandbox = require(provider, id, "measure").await.map_err(absent)?;
        let record = sandbox.record().await?;
        let sample = sandbox.require_metrics()?.sample().await.map_err(absent)?;
        let measured = Measured { id: record.id, name: record.name, sample, share: None };
        return Ok(Round { measured: vec![measured], failed: Vec::new() });
    }
    let mut running = provider.list_all(Query::new().with_states([State::Running])).await?;
    running.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    let samples = stream::iter(running).map(|record| async move {
        let sample = match provider.get(&record.id).await? {
            Some(sandbox) => sandbox.require_metrics()?.sample().await?,
            None => return Ok(None),
        };
        Ok(Some(Measured { id: record.id, name: record.name, sample, share: None }))
    });
    let (mut measured, mut failed) = (Vec::new(), Vec::new());
    for one in samples.buffered(AT_ONCE).collect::<Vec<Result<_, Error>>>().await {
        match one {
            Ok(one) => measured.extend(one),
            // It was listed, and ended before it was measured.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict) => {}
            Err(error) => failed.push(error),
        }
    }
    Ok(Round { measured, failed })
}

/// Cores used between two measurements.
fn share((then, seconds): (Timestamp, f64), now: &MetricsSample) -> Option<f64> {
    let passed = now.at.duration_since(then).as_secs_f64();
    let used = now.cpu_seconds? - seconds;
    (passed > 0.0 && used >= 0.0).then(|| used / passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_time_that_passed() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let sample = |second, cpu_seconds| MetricsSample {
            at: at(second),
            cpu_seconds,
            cpu_count: None,
            memory_bytes: None,
            memory_peak_bytes: None,
            memory_limit_bytes: None,
            disk_bytes: None,
            processes: None,
        };
        assert_eq!(share((at(10), 1.0), &sample(14, Some(3.0))), Some(0.5));
        assert_eq!(share((at(10), 1.0), &sample(10, Some(3.0))), None, "no time passed");
        assert_eq!(share((at(10), 1.0), &sample(14, None)), None, "not measured");
        assert_eq!(share((at(10), 1.0), &sample(14, Some(0.5))), None, "counted anew");
    }
}
