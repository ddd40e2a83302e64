use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use sandbar_core::ErrorKind;
use sandbar_engine::usage::Request;

use super::limits;
use super::processes::{self, Tree};
use super::protocol::Usage;
use super::shared::{Shared, hold};
use crate::error::{engine, fail};
use crate::store::{self, LayerId};

/// How long one count of what was written may take: some millions of files that are in the machine's memory, as those that were just written are.
pub(super) const DISK_BOUND: Duration = Duration::from_secs(15);
/// How long one count of memory that is not mapped may take: hundreds of thousands of open files.
pub(super) const MEMORY_BOUND: Duration = Duration::from_secs(3);

/// What the sandbox uses now.
pub(super) async fn measure(shared: &Arc<Shared>) -> Usage {
    limits::note(shared);
    let stats = shared.cgroup.as_ref().map(sandbar_engine::Cgroup::stats).unwrap_or_default();
    let tree = if stats.memory_bytes.is_none() || stats.pids.is_none() { Tree::look(shared) } else { None };
    let memory_bytes = match (&stats.memory_bytes, &tree) {
        (None, Some(tree)) => {
            // A part that can't be counted makes the sum unknown.
            match count(shared, What::Memory).await {
                Ok(usage) => Some(processes::exact(tree, usage.memory_bytes).await),
                Err(_) => None,
            }
        }
        (counted, _) => *counted,
    };
    let disk_bytes = count(shared, What::Disk).await.ok().map(|usage| usage.disk_bytes);
    let counters = hold(&shared.counters);
    Usage {
        memory_bytes,
        memory_peak_bytes: stats.memory_peak_bytes,
        cpu_usec: stats.cpu_usec,
        processes: stats.pids.or(tree.as_ref().map(|tree| tree.threads)),
        disk_bytes,
        last_kill: counters.last_kill.clone().or_else(|| shared.look(|record| record.last_kill.clone())),
        kills: counters.kills.clone(),
    }
}

/// What to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// What it wrote.
    Disk,
    /// What it holds in memory without having it mapped.
    Memory,
}

/// Counts; an error says why there is no count.
pub(super) async fn count(
    shared: &Arc<Shared>,
    what: What,
) -> sandbar_core::Result<sandbar_engine::usage::Usage> {
    let shared = Arc::clone(shared);
    let counted = tokio::task::spawn_blocking(move || {
        let layers = match what {
            What::Memory => None,
            What::Disk => match shared.folder.open_dir(sandbar_engine::LAYERS_FOLDER) {
                Ok(layers) => Some(layers),
                Err(cause) => {
                    return Err(crate::error::io_error("count", "the writable layers", cause));
                }
            },
        };
        let ids = shared.look(|record| record.private.ids.clone());
        let agent = shared.agent();
        let request = Request {
            ids: &ids,
            agent: agent.as_fd(),
            processes: &processes::all(&shared),
            layers: layers.as_ref().map(AsFd::as_fd),
            memory: what == What::Memory,
            bound: if what == What::Disk { DISK_BOUND } else { MEMORY_BOUND },
        };
        let mut counted = sandbar_engine::usage::measure(&request).map_err(|cause| engine("count", cause))?;
        if what == What::Disk {
            counted.disk_bytes = counted.disk_bytes.saturating_add(moments(&shared)?);
            hold(&shared.counters).disk_bytes = Some(counted.disk_bytes);
        }
        Ok(counted)
    });
    counted.await.unwrap_or_else(|_| Err(fail(ErrorKind::Unexpected, "count", "the count was given up")))
}

/// Bytes on disk of the layers that are moments of a sandbox: what it wrote counts for its limit before a fork and after it, and for its copies as if each
/// had written it. Nothing changes such a layer, so each is measured once.
fn moments(shared: &Shared) -> sandbar_core::Result<u64> {
    let layers = shared.look(|record| record.private.boot.as_ref().map(|boot| boot.layers.clone()));
    let mut sum = 0_u64;
    for id in layers.unwrap_or_default().into_iter().filter(LayerId::is_snapshot) {
        let known = hold(&shared.moments).get(&id).copied();
        let bytes = match known {
            Some(bytes) => Ok(bytes),
            None => store::layer_size(&shared.home, &id, DISK_BOUND),
        }?;
        hold(&shared.moments).insert(id, bytes);
        sum = sum.saturating_add(bytes);
    }
    Ok(sum)
}

/// Counts that did not come off, one after the other. One may be bad luck; a sandbox that can't be counted at all must not get away with it.
#[derive(Debug, Default)]
pub(super) struct Failures(u32);

/// Failures that are one too many.
const FAILURES: u32 = 3;

impl Failures {
    /// Whether the last count failed.
    pub(super) fn any(&self) -> bool {
        self.0 > 0
    }

    /// A count came off.
    pub(super) fn forget(&mut self) {
        self.0 = 0;
    }

    /// Another failure; `true` means that it was one too many, and the numbering begins again.
    pub(super) fn add(&mut self) -> bool {
        self.0 += 1;
        let many = self.0 >= FAILURES;
        if many {
            self.0 = 0;
        }
        many
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_too_many_at_last() {
        let mut failures = Failures::default();
        assert!(!failures.add() && !failures.add());
        failures.forget();
        assert!(!failures.add() && failures.any() && !failures.add() && failures.add());
        assert!(!failures.any());
    }
}
