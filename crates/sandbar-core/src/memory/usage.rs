use async_trait::async_trait;
use jiff::Timestamp;

use super::machine::Machine;
use super::provider::MemoryProvider;
use crate::{EndCause, Result, SandboxId, UsageEntry, UsageHistory, UsageReport};

/// Entries kept; the oldest go first.
pub(super) const KEPT_ENTRIES: usize = 1024;

/// What a machine that ends now had used. Processor time and memory are absent: the host's own are not an emulated program's.
pub(super) fn entry(machine: &Machine, cause: EndCause) -> UsageEntry {
    let ended_at = Timestamp::now();
    UsageEntry {
        version: UsageEntry::VERSION,
        id: machine.id.clone(),
        name: machine.plan.name.clone(),
        created_at: machine.created_at,
        started_at: machine.created_at,
        ended_at,
        cause,
        wall_seconds: ended_at.duration_since(machine.created_at).as_secs_f64(),
        cpu_seconds: None,
        memory_peak_bytes: None,
        disk_bytes: Some(machine.disk.lock().bytes_below(machine.root)),
    }
}

#[async_trait]
impl UsageHistory for MemoryProvider {
    async fn ended(&self, id: Option<&SandboxId>) -> Result<UsageReport> {
        let entries = self
            .world
            .lock()
            .ended
            .iter()
            .filter(|entry| id.is_none_or(|id| entry.id == *id))
            .cloned()
            .collect();
        Ok(UsageReport { entries, unreadable: 0 })
    }
}
