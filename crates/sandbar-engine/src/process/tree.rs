use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions};

/// How often the process table is read again while new descendants turn up. A process that was sent SIGKILL can't
/// fork any more, so each round is smaller than the one before.
const MAX_ROUNDS: usize = 64;
/// How long that may take: a round over some thousand processes takes tens of milliseconds.
const MAX_TIME: Duration = Duration::from_secs(2);

/// A command's stub and everything below it.
#[derive(Debug)]
pub struct Tree {
    stub: i32,
    stub_fd: OwnedFd,
    /// The program's own process id, once known; else 0.
    root: AtomicI32,
}

/// Which processes of a tree a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All of them.
    Everything,
    /// Those in the program's own session: what a terminal's interrupt key would reach, without what was detached.
    Session,
}

impl Tree {
    pub(super) fn new(stub: i32, stub_fd: OwnedFd) -> Self {
        Self { stub, stub_fd, root: AtomicI32::new(0) }
    }

    /// Tells the tree the program's process id.
    pub fn set_root(&self, pid: i32) {
        self.root.store(pid, Ordering::Relaxed);
    }

    /// Process id of the stub, which no signal of this module goes to.
    pub fn stub(&self) -> i32 {
        self.stub
    }

    /// Whether the stub lives, that is, whether any process of the tree does.
    pub fn is_alive(&self) -> bool {
        !self.wait_end(Duration::ZERO)
    }

    /// Waits until the stub has ended and its children have another parent, which is a little after its report pipe
    /// has. Returns whether that is so.
    pub fn wait_end(&self, limit: Duration) -> bool {
        let limit = limit.try_into().unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        poll(&mut [PollFd::new(&self.stub_fd, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    /// Sends a signal. Repeats for SIGKILL until nothing new turns up, so that no fork escapes. Returns how many
    /// processes were sent it.
    pub fn signal(&self, number: i32, reach: Reach) -> io::Result<usize> {
        let root = self.root.load(Ordering::Relaxed);
        if number == Signal::KILL.as_raw() && self.is_alive() {
            // A stub that something inside has stopped could not report the end.
            let _ = Pid::from_raw(self.stub).map(|stub| rustix::process::kill_process(stub, Signal::CONT));
        }
        deliver(number, |table| {
            if !self.is_alive() {
                return Vec::new();
            }
            let below = table.below(self.stub);
            match reach {
                Reach::Everything => below,
                Reach::Session => below.into_iter().filter(|pid| table.session(*pid) == Some(root)).collect(),
            }
        })
    }

    /// Waits for the stub where it has ended, for a parent that did not call
    /// [`become_quiet_parent`](super::become_quiet_parent).
    pub fn reap(&self) {
        if let Some(pid) = Pid::from_raw(self.stub) {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Sends a signal to every process that can be seen but those in `spare` and this one. For PID 1 of a sandbox.
pub fn signal_all(number: i32, spare: &[i32]) -> io::Result<usize> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    deliver(number, |table| {
        table
            .processes
            .keys()
            .copied()
            .filter(|pid| *pid != own && *pid != 1 && !spare.contains(pid))
            .collect()
    })
}

/// Sends a signal to a process and all below it. Nobody in `spare` and not this process gets one; 0 means that there is no such process. For
/// PID 1 of a sandbox, and processes that no [`Tree`] begins with.
pub fn signal_below(root: i32, number: i32, spare: &[i32]) -> io::Result<usize> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    deliver(number, |table| {
        if table.processes.get(&root).is_none_or(|entry| entry.ended) {
            // Once it is dead, what it started has another parent: its children stand still by then.
            return Vec::new();
        }
        let mut found = table.below(root);
        found.insert(0, root);
        found.retain(|pid| *pid != own && *pid != 1 && !spare.contains(pid));
        found
    })
}

/// Kills what is below this process but below none of these stubs: processes whose own stub was killed by something
/// inside, so that no tree has them any more. For PID 1 of a sandbox.
pub fn kill_orphans(stubs: &[i32]) -> io::Result<usize> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    deliver(Signal::KILL.as_raw(), |table| {
        let kept: HashSet<i32> =
            stubs.iter().flat_map(|stub| table.below(*stub)).chain(stubs.iter().copied()).collect();
        table.below(own).into_iter().filter(|pid| !kept.contains(pid)).collect()
    })
}

fn deliver(number: i32, select: impl Fn(&Table) -> Vec<i32>) -> io::Result<usize> {
    let signal = Signal::from_named_raw(number).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("signal {number} is not one that can be sent"))
    })?;
    let end = Instant::now() + MAX_TIME;
    if signal == Signal::KILL {
        // All stand still before the first dies: else a shell whose command is killed first goes on to its next line.
        sweep(Signal::STOP, &select, Instant::now() + MAX_TIME / 2)?;
    }
    sweep(signal, &select, end)
}

/// Sends a signal to all that `select` finds; repeats, where nothing may escape it, until nothing new turns up.
fn sweep(signal: Signal, select: impl Fn(&Table) -> Vec<i32>, end: Instant) -> io::Result<usize> {
    let repeats = matches!(signal, Signal::KILL | Signal::STOP);
    let mut reached = HashSet::new();
    for _ in 0..MAX_ROUNDS {
        let before = reached.len();
        for pid in select(&Table::read()?) {
            if let Some(process) = Pid::from_raw(pid)
                && !reached.contains(&pid)
                && rustix::process::kill_process(process, signal).is_ok()
            {
                reached.insert(pid);
            }
        }
        if reached.len() == before || !repeats || Instant::now() >= end {
            break;
        }
    }
    Ok(reached.len())
}

/// The process table, without what has ended already.
struct Table {
    processes: HashMap<i32, Entry>,
}

struct Entry {
    parent: i32,
    session: i32,
    ended: bool,
}

impl Table {
    fn read() -> io::Result<Self> {
        let mut processes = HashMap::new();
        let mut text = Vec::with_capacity(512);
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            text.clear();
            // A process that ended in between is no error.
            let Ok(mut file) = File::open(format!("/proc/{pid}/stat")) else { continue };
            if file.read_to_end(&mut text).is_ok()
                && let Some(entry) = parse_stat(&text)
            {
                processes.insert(pid, entry);
            }
        }
        Ok(Self { processes })
    }

    fn session(&self, pid: i32) -> Option<i32> {
        self.processes.get(&pid).map(|entry| entry.session)
    }

    /// Living descendants, nearest first.
    fn below(&self, ancestor: i32) -> Vec<i32> {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for (pid, entry) in &self.processes {
            children.entry(entry.parent).or_default().push(*pid);
        }
        let mut found = vec![ancestor];
        let mut next = 0;
        while let Some(pid) = found.get(next) {
            if let Some(more) = children.remove(pid) {
                found.extend(more);
            }
            next += 1;
        }
        found.retain(|pid| *pid != ancestor && self.processes.get(pid).is_some_and(|entry| !entry.ended));
        found
    }
}

/// Fields after the name, which stands in parentheses and may hold anything, also parentheses.
fn parse_stat(text: &[u8]) -> Option<Entry> {
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Entry { parent, session, ended })
}

#[cfg(any(test, feature = "fuzzing"))]
/// Parent, session, and whether it ended.
pub(crate) fn parsed(text: &[u8]) -> Option<(i32, i32, bool)> {
    parse_stat(text).map(|entry| (entry.parent, entry.session, entry.ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_hold_anything() {
        let entry = parse_stat(b"7 (a) Z 1 (x) S 3 7 5 0 -1").unwrap();
        assert_eq!((entry.parent, entry.session, entry.ended), (3, 5, false));
        assert!(parse_stat(b"7 (a) Z 3 7 5").unwrap().ended);
        assert!(
            parse_stat(b"").is_none() && parse_stat(b"7 (a").is_none() && parse_stat(b"7 (a) S x").is_none()
        );
    }
}
