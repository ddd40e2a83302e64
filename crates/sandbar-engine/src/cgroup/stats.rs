use std::path::Path;

use super::create::{Cgroup, Version};
use super::layout::Controller;

/// What a sandbox uses. `None`: this machine does not count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes now.
    pub memory_bytes: Option<u64>,
    /// The most bytes so far.
    pub memory_peak_bytes: Option<u64>,
    /// Microseconds of processor time so far.
    pub cpu_usec: Option<u64>,
    /// Processes and threads now.
    pub pids: Option<u64>,
}

/// How often limits were hit. `None`: this machine does not count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events {
    /// Processes killed because memory ran out.
    pub oom_kills: Option<u64>,
    /// Refused starts of a process or thread.
    pub pids_hits: Option<u64>,
    /// Times memory had to be reclaimed because of the limit.
    pub memory_hits: Option<u64>,
}

impl Cgroup {
    /// Reads the counters.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        match self.find(Controller::Memory) {
            Some((Version::Two, dir)) => {
                stats.memory_bytes = number(&dir.join("memory.current"));
                stats.memory_peak_bytes = number(&dir.join("memory.peak"));
            }
            Some((Version::One, dir)) => {
                stats.memory_bytes = number(&dir.join("memory.usage_in_bytes"));
                stats.memory_peak_bytes = number(&dir.join("memory.max_usage_in_bytes"));
            }
            None => {}
        }
        // Version 2 counts processor time in every group, with or without the controller.
        let v2 = self.v2.as_ref().and_then(|member| keyed(&member.dir.join("cpu.stat"), "usage_usec"));
        stats.cpu_usec = v2.or_else(|| {
            let (_, dir) = self.find(Controller::CpuAcct)?;
            Some(number(&dir.join("cpuacct.usage"))? / 1000)
        });
        stats.pids = self.find(Controller::Pids).and_then(|(_, dir)| number(&dir.join("pids.current")));
        stats
    }

    /// Reads how often limits were hit.
    pub fn events(&self) -> Events {
        let mut events = Events::default();
        match self.find(Controller::Memory) {
            Some((Version::Two, dir)) => {
                events.oom_kills = keyed(&dir.join("memory.events"), "oom_kill");
                events.memory_hits = keyed(&dir.join("memory.events"), "max");
            }
            Some((Version::One, dir)) => {
                events.oom_kills = keyed(&dir.join("memory.oom_control"), "oom_kill");
                events.memory_hits = number(&dir.join("memory.failcnt"));
            }
            None => {}
        }
        if let Some((_, dir)) = self.find(Controller::Pids) {
            events.pids_hits = keyed(&dir.join("pids.events"), "max");
        }
        events
    }
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn keyed(path: &Path, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}
