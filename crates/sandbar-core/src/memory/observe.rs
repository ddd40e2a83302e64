use async_trait::async_trait;
use jiff::Timestamp;

use super::sandbox::MemorySandbox;
use crate::{Metrics, MetricsSample, Result};

#[async_trait]
impl Metrics for MemorySandbox {
    /// Processor time and memory are absent: the host's own are not an emulated program's.
    async fn sample(&self) -> Result<MetricsSample> {
        let machine = self.machine("sample")?;
        let disk_bytes = machine.disk.lock().bytes_below(machine.root);
        Ok(MetricsSample {
            at: Timestamp::now(),
            cpu_seconds: None,
            cpu_count: None,
            memory_bytes: None,
            memory_peak_bytes: None,
            memory_limit_bytes: machine.resources().memory_bytes,
            disk_bytes: Some(disk_bytes),
            processes: Some(machine.processes.count() as u64),
        })
    }
}
