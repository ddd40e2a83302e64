use std::io;

use rustix::io::Errno;
use rustix::process::Pid;

use super::shared::Shared;

/// Processes of one sandbox that are looked at: more is a fork bomb, and above any limit that is watched.
const MAX_PROCESSES: usize = 100_000;
/// The flag of a thread that has begun to end, `PF_EXITING` of the kernel.
const EXITING: u64 = 0x4;
/// How long the exact look at memory may take: a process can keep it waiting, by keeping its own map busy.
const EXACT: std::time::Duration = std::time::Duration::from_secs(3);

/// The processes of a sandbox, found from its agent downwards: what loses its parent becomes the child of another below the agent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    /// The agent first.
    pub(super) processes: Vec<Pid>,
    /// Processes and threads.
    pub(super) threads: u64,
    /// Resident memory in bytes, pages that several share counted in each: an upper bound.
    pub(super) resident_bytes: u64,
}

impl Tree {
    /// Looks at each process; `None` if the agent is gone.
    pub(super) fn look(shared: &Shared) -> Option<Self> {
        walk(agent(shared)?)
    }

    /// Whether anything but the agent runs.
    pub(super) fn is_busy(&self) -> bool {
        self.processes.len() > 1
    }
}

fn agent(shared: &Shared) -> Option<Pid> {
    shared.look(|record| record.private.agent.as_ref().and_then(|mark| mark.pid().ok().flatten()))
}

/// All processes, the agent first; by the control group where there is one, since nothing leaves that.
pub(super) fn all(shared: &Shared) -> Vec<Pid> {
    let Some(agent) = agent(shared) else { return Vec::new() };
    let grouped = shared.cgroup.as_ref().and_then(|group| group.processes().ok());
    match grouped {
        Some(pids) if pids.contains(&agent) => {
            std::iter::once(agent).chain(pids.into_iter().filter(|pid| *pid != agent)).collect()
        }
        _ => walk(agent).map(|tree| tree.processes).unwrap_or_default(),
    }
}

/// Whether a process stands still: stopped, or ended and not yet taken note of.
pub(super) fn is_stopped(pid: Pid) -> bool {
    matches!(state(pid), None | Some('T' | 't' | 'Z' | 'X'))
}

/// Whether a process waits in the kernel for something that no signal but a deadly one ends.
pub(super) fn waits_in_kernel(pid: Pid) -> bool {
    state(pid) == Some('D')
}

/// The letter of its state; `None` if it is gone.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // Its name may hold anything, a parenthesis too.
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

/// Whether anything but the agent runs, without looking further.
pub(super) fn any_but_agent(shared: &Shared) -> bool {
    agent(shared).is_some_and(|agent| !children(agent.as_raw_nonzero().get()).1.is_empty())
}

/// Whether nothing runs but the agent, and what is on its way out already. By the control group where there is one, since nothing leaves that; else by the
/// agent's children, since it is the parent of all that lose theirs.
pub(super) fn is_alone(shared: &Shared) -> io::Result<bool> {
    let agent = agent(shared).ok_or(io::ErrorKind::NotFound)?;
    if let Some(group) = &shared.cgroup {
        let processes = group.processes().map_err(io::Error::other)?;
        if processes.contains(&agent) {
            for pid in processes.into_iter().filter(|pid| *pid != agent) {
                if !is_ending(pid)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
    }
    has_no_children(agent.as_raw_nonzero().get())
}

/// Whether a process is gone, or all its threads have begun to go: none of them runs a program any more.
fn is_ending(pid: Pid) -> io::Result<bool> {
    let place = format!("/proc/{}/task", pid.as_raw_nonzero());
    let Some(tasks) = gone_is_none(std::fs::read_dir(place))? else { return Ok(true) };
    for task in tasks {
        let Some(task) = gone_is_none(task)? else { continue };
        let Some(stat) = gone_is_none(std::fs::read_to_string(task.path().join("stat")))? else { continue };
        // Its name may hold anything, a parenthesis too. After that come the state, and as the seventh its flags.
        let flags = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(6)?.parse::<u64>().ok());
        let flags = flags.ok_or(io::ErrorKind::InvalidData)?;
        if flags & EXITING == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a process has no children; one that can't be looked at whole is an error.
fn has_no_children(pid: i32) -> io::Result<bool> {
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = std::fs::read_to_string(task?.path().join("children"))?;
        if !children.trim_ascii().is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is gone is nothing; everything else that goes wrong stays an error.
fn gone_is_none<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(cause)
            if cause.kind() == io::ErrorKind::NotFound
                || cause.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
        {
            Ok(None)
        }
        Err(cause) => Err(cause),
    }
}

fn walk(root: Pid) -> Option<Tree> {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let mut tree = Tree::default();
    let mut pending = vec![root.as_raw_nonzero().get()];
    while let Some(pid) = pending.pop() {
        if tree.processes.len() >= MAX_PROCESSES {
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
        tree.resident_bytes += resident * page;
        tree.processes.extend(Pid::from_raw(pid));
        let (threads, children) = children(pid);
        tree.threads += threads;
        pending.extend(children);
    }
    Some(tree)
}

/// How many threads a process has, and its children.
fn children(pid: i32) -> (u64, Vec<i32>) {
    let (mut threads, mut found) = (0, Vec::new());
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return (threads, found) };
    for task in tasks.filter_map(Result::ok) {
        threads += 1;
        if let Ok(children) = std::fs::read_to_string(task.path().join("children")) {
            found.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        }
    }
    (threads, found)
}

/// Memory of the processes in bytes, shared pages counted once, together with `held`, what they hold without having it mapped. Where this can't be
/// found out in time, the upper bound is the answer.
///
/// What is both held and mapped would count twice, so of the two the larger one counts.
pub(super) async fn exact(tree: &Tree, held: u64) -> u64 {
    let pids = tree.processes.clone();
    let looked = tokio::task::spawn_blocking(move || {
        pids.into_iter().filter_map(share).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    match tokio::time::timeout(EXACT, looked).await {
        Ok(Ok((all, shared))) if all > 0 => all.saturating_sub(shared) + shared.max(held),
        _ => tree.resident_bytes + held,
    }
}

/// A process' share of memory in bytes, and how much of that is shared memory.
fn share(pid: Pid) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero())).ok()?;
    Some((line(&text, "Pss:")?, line(&text, "Pss_Shmem:").unwrap_or(0)))
}

/// A line in units of 1024 bytes.
fn line(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_counted_whole() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 30 & sleep 30"]).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let whole = crate::wait::until(std::time::Duration::from_secs(5), || {
            let tree = walk(pid);
            Ok::<_, ()>(tree.is_some_and(|tree| {
                tree.threads == 3 && tree.processes.len() == 3 && tree.resident_bytes > 100_000
            }))
        });
        let _ = std::process::Command::new("pkill").args(["-P", &child.id().to_string()]).status();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(whole, Ok(true));
        assert_eq!(walk(pid), None, "it is gone");
    }

    #[test]
    fn what_can_not_be_looked_at_is_an_error_and_what_ends_is_nothing() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(!is_ending(pid).unwrap());
        assert!(has_no_children(pid.as_raw_nonzero().get()).unwrap());
        assert!(!has_no_children(rustix::process::getpid().as_raw_nonzero().get()).unwrap());
        child.kill().unwrap();
        let ended = crate::wait::until(std::time::Duration::from_secs(5), || is_ending(pid));
        assert!(ended.unwrap(), "nobody took note of its end yet");
        child.wait().unwrap();
        assert!(is_ending(pid).unwrap());
        assert!(has_no_children(pid.as_raw_nonzero().get()).is_err(), "it is gone");
    }

    #[tokio::test]
    async fn what_is_held_and_mapped_counts_once() {
        let me = rustix::process::getpid();
        let tree = Tree { processes: vec![me], threads: 1, resident_bytes: u64::MAX / 2 };
        let (all, shared) = share(me).unwrap();
        assert!(all > 100_000 && all >= shared);
        let exact = exact(&tree, 1 << 40).await;
        assert!(((1 << 40)..(1 << 40) + (1 << 32)).contains(&exact), "{exact}");
        assert_eq!(line("Rss: 5 kB\nPss_Shmem:   7 kB\n", "Pss_Shmem:"), Some(7168));
    }
}
