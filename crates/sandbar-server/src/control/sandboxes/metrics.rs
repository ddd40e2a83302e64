use std::sync::Arc;

use axum::extract::State;
use jiff::Timestamp;
use sandbar_core::{SandboxExt as _, State as Core};
use sandbar_wire::e2b::{SandboxMetric, SandboxesMetrics};
use serde::Deserialize;

use super::answer::started_at;
use super::sampler;
use crate::app::App;
use crate::control::extract::{PathId, Query};
use crate::error::{ApiError, ApiResult};
use crate::store::Sample;
use crate::tenant::Tenant;

/// Most sandboxes whose newest metrics are asked for at once: E2B's limit.
const MAX_IDS: usize = 100;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// How much of a range one entry stands for, as E2B has it: seconds of a range that is shorter than so many.
const BUCKETS: [(i64, i64); 5] =
    [(HOUR, 5), (6 * HOUR, 30), (12 * HOUR, MINUTE), (24 * HOUR, 2 * MINUTE), (7 * 24 * HOUR, 5 * MINUTE)];

/// How much one entry stands for in the longest ranges, in seconds.
const LONGEST_BUCKET: i64 = 15 * MINUTE;

#[derive(Debug, Deserialize)]
pub(super) struct Range {
    /// Unix seconds.
    start: Option<i64>,
    end: Option<i64>,
}

/// `GET /sandboxes/{id}/metrics`
pub(super) async fn of_one(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    Query(range): Query<Range>,
) -> ApiResult<axum::Json<Vec<SandboxMetric>>> {
    let known = app.sandbox(&tenant, &id).await?;
    let now = Timestamp::now();
    let start = range.start.unwrap_or_else(|| started_at(&known.record).as_second());
    let end = range.end.unwrap_or_else(|| now.as_second() + 1);
    if start < 0 || end < start {
        return Err(ApiError::bad_request(format!(
            "the range from {start} to {end} is not valid: expected Unix seconds, the start not after the end"
        )));
    }
    known.sandbox.require_metrics()?;
    let (from, to) = (start.saturating_mul(1000), end.saturating_mul(1000).saturating_add(999));
    let mut samples = app.store.samples(&known.record.id, from, to).await?;
    let is_now = (from..=to).contains(&now.as_millisecond());
    if samples.is_empty() && is_now && known.record.state == Core::Running {
        // Nobody looked yet: it has just been made.
        samples.extend(sampler::look(&*known.sandbox, &known.record, None).await?.map(|(sample, _)| sample));
    }
    Ok(axum::Json(bucketed(&samples, bucket(end - start))))
}

#[derive(Debug, Deserialize)]
pub(super) struct Ids {
    sandbox_ids: Option<String>,
}

/// `GET /sandboxes/metrics`: the newest of each. One that is unknown has none, and neither has another's.
pub(super) async fn of_many(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    Query(Ids { sandbox_ids }): Query<Ids>,
) -> ApiResult<axum::Json<SandboxesMetrics>> {
    let text = sandbox_ids.unwrap_or_default();
    let asked: Vec<_> = text.split(',').map(str::trim).filter(|id| !id.is_empty()).collect();
    if asked.is_empty() || asked.len() > MAX_IDS {
        return Err(ApiError::bad_request(format!(
            "sandbox_ids has {} ids: expected 1 to {MAX_IDS}, with commas between",
            asked.len()
        )));
    }
    let own = app.records(&tenant).await?;
    let own = own.iter().map(|(record, _)| record.id.as_str()).filter(|id| asked.contains(id));
    let newest = app.store.newest_samples(own.map(str::to_owned).collect()).await?;
    let sandboxes = newest.into_iter().map(|(id, sample)| (id, metric(&sample))).collect();
    Ok(axum::Json(SandboxesMetrics { sandboxes }))
}

fn bucket(range: i64) -> i64 {
    BUCKETS.iter().find(|(below, _)| range < *below).map_or(LONGEST_BUCKET, |(_, bucket)| *bucket)
}

/// One entry for each stretch of so many seconds that has samples: the average load, and the most of everything else.
fn bucketed(samples: &[Sample], seconds: i64) -> Vec<SandboxMetric> {
    let of = |sample: &Sample| sample.at.div_euclid(seconds * 1000);
    let buckets = samples.chunk_by(|a, b| of(a) == of(b));
    buckets
        .map(|samples| {
            let most = |value: fn(&Sample) -> u64| samples.iter().map(value).max().unwrap_or_default();
            let last = samples.last().copied().unwrap_or_default();
            #[expect(clippy::cast_precision_loss, reason = "there are few samples in a bucket")]
            let load = samples.iter().map(|sample| sample.cpu_pct).sum::<f64>() / samples.len() as f64;
            metric(&Sample {
                cpu_pct: (load * 100.0).round() / 100.0,
                mem_used: most(|sample| sample.mem_used),
                mem_cache: most(|sample| sample.mem_cache),
                disk_used: most(|sample| sample.disk_used),
                ..last
            })
        })
        .collect()
}

fn metric(sample: &Sample) -> SandboxMetric {
    let at = Timestamp::from_millisecond(sample.at).unwrap_or(Timestamp::UNIX_EPOCH);
    SandboxMetric {
        timestamp: at.to_string(),
        timestamp_unix: at.as_second(),
        cpu_count: sample.cpu_count,
        cpu_used_pct: sample.cpu_pct,
        mem_used: sample.mem_used,
        mem_total: sample.mem_total,
        mem_cache: sample.mem_cache,
        disk_used: sample.disk_used,
        disk_total: sample.disk_total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_ranges_have_longer_buckets() {
        let hours = |hours| bucket(hours * HOUR);
        assert_eq!((bucket(HOUR - 1), hours(1), hours(6), hours(12), hours(24)), (5, 30, 60, 120, 300));
        assert_eq!(hours(7 * 24), 900);
    }

    #[test]
    fn a_bucket_has_the_average_load_and_the_most_of_the_rest() {
        let at = |at, cpu_pct, mem_used| Sample { at, cpu_pct, mem_used, ..Sample::default() };
        let samples = [at(1000, 10.0, 5), at(4000, 20.0, 3), at(9000, 50.0, 9)];
        let metrics = bucketed(&samples, 5);
        assert_eq!(metrics.len(), 2);
        assert!((metrics[0].cpu_used_pct - 15.0).abs() < f64::EPSILON);
        assert_eq!((metrics[0].mem_used, metrics[0].timestamp_unix, metrics[1].mem_used), (5, 4, 9));
        assert!(bucketed(&[], 5).is_empty());
    }
}
