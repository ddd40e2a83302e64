use rustix::process::Pid;

use super::protocol::Usage;
use super::shared::{Shared, hold};
use super::{disk, limits};

/// Processes of one sandbox that are looked at: more is a fork bomb, and above any limit that is watched.
const MAX_PROCESSES: usize = 100_000;

/// What the sandbox uses now.
pub(super) async fn measure(shared: &std::sync::Arc<Shared>) -> Usage {
    limits::note(shared);
    let stats = shared.cgroup.as_ref().map(sandbar_engine::Cgroup::stats).unwrap_or_default();
    let tree = if stats.memory_bytes.is_none() || stats.pids.is_none() { of_tree(shared) } else { None };
    let disk_bytes = disk::measure(shared).await;
    let counters = hold(&shared.counters);
    Usage {
        memory_bytes: stats.memory_bytes.or(tree.as_ref().map(|tree| tree.memory_bytes)),
        memory_peak_bytes: stats.memory_peak_bytes,
        cpu_usec: stats.cpu_usec,
        processes: stats.pids.or(tree.as_ref().map(|tree| tree.threads)),
        disk_bytes,
        last_kill: counters.last_kill.clone().or_else(|| shared.look(|record| record.last_kill.clone())),
        kills: counters.kills.clone(),
    }
}

/// What a tree of processes uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TreeUsage {
    /// Resident memory, pages that several share counted in each: an upper bound.
    pub(super) memory_bytes: u64,
    /// Processes and threads.
    pub(super) threads: u64,
}

/// What the sandbox' processes use, by looking at each; `None` if the agent is gone. All of them descend from the agent: what loses its parent
/// becomes the child of another below it.
pub(super) fn of_tree(shared: &Shared) -> Option<TreeUsage> {
    let agent = shared.look(|record| record.private.agent.as_ref().and_then(crate::home::AgentMark::pid))?;
    walk(agent)
}

fn walk(root: Pid) -> Option<TreeUsage> {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let mut usage = TreeUsage::default();
    let mut pending = vec![root.as_raw_nonzero().get()];
    let mut seen = 0;
    while let Some(pid) = pending.pop() {
        seen += 1;
        if seen > MAX_PROCESSES {
            break;
        }
        // One that ended since is passed over.
        let Ok(statm) = std::fs::read_to_string(format!("/proc/{pid}/statm")) else {
            if pid == root.as_raw_nonzero().get() {
                return None;
            }
            continue;
        };
        let resident: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        usage.memory_bytes += resident * page;
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.filter_map(Result::ok) {
            usage.threads += 1;
            if let Ok(children) = std::fs::read_to_string(task.path().join("children")) {
                pending
                    .extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<i32>().ok()));
            }
        }
    }
    Some(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_counted_whole() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 30 & sleep 30"]).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let whole = crate::wait::until(std::time::Duration::from_secs(5), || {
            Ok::<_, ()>(walk(pid).is_some_and(|usage| usage.threads == 3 && usage.memory_bytes > 100_000))
        });
        let _ = std::process::Command::new("pkill").args(["-P", &child.id().to_string()]).status();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(whole, Ok(true));
        assert_eq!(walk(pid), None, "it is gone");
    }
}
