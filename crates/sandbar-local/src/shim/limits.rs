use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use sandbar_core::{KillCause, LastKill, LimitState};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::disk::DiskWatch;
use super::memory::MemoryWatch;
use super::processes::{self, Tree};
use super::protocol::cause_name;
use super::shared::{Shared, hold};
use crate::ctl;
use crate::home::AgentMark;
use crate::wait::until_async;

/// Between two looks at what is watched. Once a second costs an idle sandbox nothing that can be measured, and a runaway writes no more than a
/// disk takes in a second.
const LOOK: Duration = Duration::from_secs(1);
/// How long killed processes may take to be gone: the kernel is quick, unless they wait for a disk or free much memory.
const ENDED: Duration = Duration::from_secs(5);

/// What is counted of limits, in memory; the record has it too, where it could be written.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) last_kill: Option<LastKill>,
    /// How often each cause ended something, by name.
    pub(super) kills: BTreeMap<String, u64>,
    /// Bytes of disk when they were last counted.
    pub(super) disk_bytes: Option<u64>,
    seen: sandbar_engine::cgroup::Events,
}

impl Counters {
    /// Counters that start now.
    pub(super) fn since(group: Option<&sandbar_engine::Cgroup>) -> Self {
        Self { seen: group.map(sandbar_engine::Cgroup::events).unwrap_or_default(), ..Self::default() }
    }

    pub(super) fn note(&mut self, kill: LastKill) {
        *self.kills.entry(cause_name(kill.cause).to_owned()).or_default() += 1;
        self.last_kill = Some(kill);
    }
}

/// Looks at the limits from time to time, as long as the shim lives.
pub(super) async fn watch(shared: Arc<Shared>) {
    let (mut disk, mut memory) = (DiskWatch::default(), MemoryWatch::default());
    // At the very beginning there is nothing to see yet, and a short command has the machine to itself.
    let mut clock = interval_at(Instant::now() + LOOK, LOOK);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        note(&shared);
        watch_memory_and_pids(&shared, &mut memory).await;
        let Some(limit) = shared.look(|record| watched(record.limits.get("disk"))) else { continue };
        let busy = processes::any_but_agent(&shared);
        // Where nothing runs there is nobody to end; what is there stays there.
        if let Some(detail) = disk.exceeded(&shared, limit, busy).await
            && processes::any_but_agent(&shared)
        {
            kill_all(&shared, KillCause::Disk, "disk", detail).await;
        }
    }
}

/// Notes what the kernel counted since the last look.
pub(super) fn note(shared: &Shared) {
    let Some(group) = &shared.cgroup else { return };
    let now = group.events();
    let before = std::mem::replace(&mut hold(&shared.counters).seen, now);
    if now == before {
        return;
    }
    if let Some(count) = more(before.oom_kills, now.oom_kills) {
        hit(shared, "memory", count);
        shared.note_kill(KillCause::Oom, format!("the memory limit ended {count} processes so far"));
    }
    if let Some(count) = more(before.pids_hits, now.pids_hits) {
        hit(shared, "pids", count);
        shared.note_kill(KillCause::Pids, format!("the limit on processes refused {count} starts so far"));
    }
}

/// A counter that rose, and where to.
fn more(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    now.filter(|now| *now > before.unwrap_or(0))
}

fn hit(shared: &Shared, limit: &str, count: u64) {
    let _ = shared.update(|record| {
        if let Some(limit) = record.limits.get_mut(limit) {
            limit.hits = Some(count);
        }
    });
}

/// Keeps memory and process limits where the kernel does not.
async fn watch_memory_and_pids(shared: &Arc<Shared>, watch: &mut MemoryWatch) {
    let (memory, pids) =
        shared.look(|record| (watched(record.limits.get("memory")), watched(record.limits.get("pids"))));
    if memory.is_none() && pids.is_none() {
        return;
    }
    let Some(tree) = Tree::look(shared) else { return };
    if let Some(limit) = memory
        && let Some(detail) = watch.exceeded(shared, limit, &tree).await
        && tree.is_busy()
    {
        kill_all(shared, KillCause::Oom, "memory", detail).await;
    } else if let Some(limit) = pids.filter(|limit| tree.threads > *limit) {
        let detail = format!("{} processes and threads are above the limit of {limit}", tree.threads);
        kill_all(shared, KillCause::Pids, "pids", detail).await;
    }
}

fn watched(limit: Option<&sandbar_core::Limit>) -> Option<u64> {
    limit.filter(|limit| limit.state == LimitState::Watched).and_then(|limit| limit.value)
}

/// Ends every process of the sandbox but its agent. Where the agent does not do that, or only says so, the agent ends, and everything with it.
async fn kill_all(shared: &Shared, cause: KillCause, limit: &str, detail: String) {
    shared.note_kill(cause, detail);
    let count = hold(&shared.counters).kills.get(cause_name(cause)).copied().unwrap_or(0);
    hit(shared, limit, count);
    let victims: Vec<_> = processes::all(shared)
        .into_iter()
        .skip(1)
        .filter_map(|pid| AgentMark::of(pid).ok().flatten())
        .collect();
    let signal = Signal::KILL.as_raw();
    let told = ctl::ask(&shared.folder, &ctl::Op::KillAll { signal }, None).await;
    let ended = matches!(told, Ok(ctl::Outcome::Done(_)))
        && until_async(ENDED, || Ok::<_, std::io::Error>(!any_lives(&victims)?)).await.unwrap_or(false);
    if !ended {
        let _ = rustix::process::pidfd_send_signal(shared.agent(), Signal::KILL);
    }
}

fn any_lives(processes: &[AgentMark]) -> std::io::Result<bool> {
    for process in processes {
        if process.lives()? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rise_is_news() {
        assert_eq!(more(None, None), None);
        assert_eq!(more(None, Some(0)), None);
        assert_eq!(more(Some(1), Some(1)), None);
        assert_eq!(more(Some(1), Some(3)), Some(3));
        assert_eq!(more(None, Some(2)), Some(2));
    }
}
