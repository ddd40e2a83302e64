use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sandbar_core::{Error, ErrorKind, Metrics, MetricsSample, Result, Retry};
use sandbar_wire::e2b::{SandboxMetric, SandboxState};

use crate::E2bSandbox;
use crate::config::BACKEND;
use crate::error::{absent, asleep};

const OPERATION: &str = "metrics";

/// How far back a sample may lie: E2B takes one every five seconds.
const RECENT: i64 = 60;

/// When there is one at the latest.
const NEXT: Duration = Duration::from_secs(5);

#[async_trait]
impl Metrics for E2bSandbox {
    async fn sample(&self) -> Result<MetricsSample> {
        let (id, now) = (self.access.id(), Timestamp::now().as_second());
        let samples = self.access.api().metrics(OPERATION, id, now - RECENT).await?;
        let samples = samples.ok_or_else(|| absent(OPERATION, id))?;
        if let Some(newest) = samples.iter().max_by_key(|sample| sample.timestamp_unix) {
            return Ok(sample(newest));
        }
        if self.detail(OPERATION).await?.listed.state == SandboxState::Paused {
            return Err(asleep(OPERATION, id));
        }
        Err(Error::new(ErrorKind::Unavailable, OPERATION, format!("sandbox `{id}` was not measured yet"))
            .with_backend(BACKEND)
            .with_retry(Retry::After(NEXT)))
    }
}

fn sample(metric: &SandboxMetric) -> MetricsSample {
    let measured = |bytes: u64| (bytes > 0).then_some(bytes);
    MetricsSample {
        at: Timestamp::from_second(metric.timestamp_unix).unwrap_or_default(),
        cpu_seconds: None,
        cpu_count: (metric.cpu_count > 0).then(|| f64::from(metric.cpu_count)),
        memory_bytes: measured(metric.mem_used),
        memory_peak_bytes: None,
        memory_limit_bytes: measured(metric.mem_total),
        disk_bytes: Some(metric.disk_used),
        processes: None,
    }
}
