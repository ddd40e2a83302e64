use std::sync::Arc;

use rustix::process::{Resource, Rlimit, prlimit};
use sandbar_core::{Error, ErrorKind, Limit, LimitState, Result};
use sandbar_engine::cgroup::Controller;
use sandbar_engine::{Cgroup, Host, MIN_CPUS_MILLI};

use super::protocol::{LimitOrders, Usage};
use super::shared::Shared;
use super::usage;
use crate::error::{engine, fail, io_error};
use crate::home::AgentMark;
use crate::mounts;

const OPERATION: &str = "set resources";

/// Changes the limits that are given. What can't be changed is found before anything is; what fails half-way is taken back.
pub(super) async fn resize(shared: &Arc<Shared>, wanted: LimitOrders) -> Result<()> {
    let _turn = shared.resizing.lock().await;
    check(shared, &wanted)?;
    let used = usage::measure(shared).await;
    fits(shared, &wanted, &used)?;
    let file_size = file_size(shared, &wanted)?;
    let mut done = Done { shared, steps: Vec::new() };
    match done.all(&wanted, file_size) {
        Ok(()) => Ok(()),
        Err(error) => Err(done.undo(error)),
    }
}

/// Refuses what this machine can't do, before any effect.
fn check(shared: &Shared, wanted: &LimitOrders) -> Result<()> {
    let group = shared.cgroup.as_ref();
    let has = |controller| group.is_some_and(|group| group.limits(controller));
    let refuse = |feature: &str, why: &str| {
        Err(Error::unsupported(OPERATION, feature, why)
            .with_backend(crate::config::BACKEND)
            .with_hint("`sandbar doctor` says what is missing for control groups, and how to get it"))
    };
    if wanted.cpu_millis.is_some() && !has(Controller::Cpu) {
        return refuse("a processor limit", "no control group holds this sandbox' processor time");
    }
    if wanted.pids.is_some() && !has(Controller::Pids) {
        return refuse(
            "another limit on processes",
            "no control group counts them here, and what its processes were started with can't be changed",
        );
    }
    if let Some(millis) = wanted.cpu_millis.filter(|millis| *millis < MIN_CPUS_MILLI) {
        let why = format!(
            "a processor limit of {millis} thousandths is not valid: expected at least {MIN_CPUS_MILLI}"
        );
        return Err(fail(ErrorKind::InvalidInput, OPERATION, why));
    }
    for name in &wanted.demanded {
        let enforced = match name.as_str() {
            "memory" => has(Controller::Memory),
            "cpu" => has(Controller::Cpu),
            "pids" => has(Controller::Pids),
            _ => false,
        };
        if !enforced {
            return Err(mounts::not_enforced(name, name != "cpu", &Host::observe()));
        }
    }
    Ok(())
}

/// Refuses limits below what is used now: keeping them would end what runs.
fn fits(shared: &Shared, wanted: &LimitOrders, used: &Usage) -> Result<()> {
    let in_group = shared.cgroup.as_ref().is_some_and(|group| group.limits(Controller::Memory));
    for (what, limit, used) in [
        // A group's own count has caches in it, which give way; the group itself knows better.
        ("memory", wanted.memory_bytes.filter(|_| !in_group), used.memory_bytes),
        ("processes", wanted.pids.map(u64::from), used.processes),
        ("disk space", wanted.disk_bytes, used.disk_bytes),
    ] {
        let Some(limit) = limit else { continue };
        let Some(used) = used else {
            let why = format!("how much {what} it uses can't be measured, so a limit might end what runs");
            return Err(fail(ErrorKind::Unavailable, OPERATION, why));
        };
        if used > limit {
            return Err(below_use(what, limit, &format!("{used} are in use")));
        }
    }
    Ok(())
}

fn below_use(what: &str, limit: u64, why: &str) -> Error {
    fail(ErrorKind::Conflict, OPERATION, format!("a limit of {limit} on {what} is below what is used: {why}"))
        .with_hint("end or delete what is not needed, or choose a higher limit")
}

/// The limit on single files that goes with a new limit on disk space: what commands will be started with, and what they are started with now.
fn file_size(shared: &Shared, wanted: &LimitOrders) -> Result<Option<FileSize>> {
    let Some(bytes) = wanted.disk_bytes else { return Ok(None) };
    let agent = shared.look(|record| record.private.agent.as_ref().map(AgentMark::pid).transpose());
    let agent = agent.map_err(|cause| io_error(OPERATION, "the agent", cause))?.flatten();
    let agent = agent.ok_or_else(|| fail(ErrorKind::Unavailable, OPERATION, "the agent is gone"))?;
    let text = std::fs::read_to_string(format!("/proc/{}/limits", agent.as_raw_nonzero()))
        .map_err(|cause| io_error(OPERATION, "the agent's limits", cause))?;
    let now = parse_file_size(&text).ok_or_else(|| {
        fail(ErrorKind::Unexpected, OPERATION, "the agent's limit on file sizes can't be read")
    })?;
    // A lower limit is kept by counting; what single files were held to before may stay.
    if now.current.is_none_or(|most| bytes <= most) {
        return Ok(None);
    }
    let maximum = now.maximum.map(|most| most.max(bytes));
    Ok(Some(FileSize { agent, now, wanted: Rlimit { current: Some(bytes), maximum } }))
}

#[derive(Clone, Debug)]
struct FileSize {
    agent: rustix::process::Pid,
    now: Rlimit,
    wanted: Rlimit,
}

/// `Max file size  SOFT  HARD  bytes` of `/proc/PID/limits`.
fn parse_file_size(text: &str) -> Option<Rlimit> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max file size"))?;
    let mut words = line.split_ascii_whitespace().map(|word| match word {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    });
    Some(Rlimit { current: words.next()??, maximum: words.next()?? })
}

/// What was done, to be taken back.
struct Done<'a> {
    shared: &'a Arc<Shared>,
    steps: Vec<Step>,
}

enum Step {
    Memory(Option<u64>),
    Cpu(Option<u32>),
    Pids(Option<u32>),
    FileSize(FileSize),
}

impl Done<'_> {
    fn all(&mut self, wanted: &LimitOrders, file_size: Option<FileSize>) -> Result<()> {
        let before = self.shared.look(|record| record.limits.clone());
        let value = |name: &str| before.get(name).and_then(|limit| limit.value);
        let narrow = |name: &str| value(name).and_then(|value| u32::try_from(value).ok());
        // The one that the kernel may refuse comes first.
        if let (Some(bytes), Some(group)) = (wanted.memory_bytes, &self.shared.cgroup) {
            limit_memory(group, bytes)?;
            self.steps.push(Step::Memory(value("memory")));
        }
        if let (Some(pids), Some(group)) = (wanted.pids, &self.shared.cgroup) {
            group.limit_pids(Some(pids)).map_err(|cause| engine(OPERATION, cause))?;
            self.steps.push(Step::Pids(narrow("pids")));
        }
        if let (Some(millis), Some(group)) = (wanted.cpu_millis, &self.shared.cgroup) {
            group.limit_cpu(Some(millis)).map_err(|cause| engine(OPERATION, cause))?;
            self.steps.push(Step::Cpu(narrow("cpu")));
        }
        if let Some(file_size) = file_size {
            prlimit(Some(file_size.agent), Resource::Fsize, file_size.wanted)
                .map_err(|cause| not_raised(cause.into()))?;
            self.steps.push(Step::FileSize(file_size));
        }
        self.write_down(wanted).map_err(|cause| io_error(OPERATION, "`record.json`", cause))
    }

    fn write_down(&self, wanted: &LimitOrders) -> std::io::Result<()> {
        let group = self.shared.cgroup.as_ref();
        let state = |controller| {
            let enforced = group.is_some_and(|group| group.limits(controller));
            if enforced { LimitState::Enforced } else { LimitState::Watched }
        };
        self.shared.update(|record| {
            for (name, value, state) in [
                ("memory", wanted.memory_bytes, state(Controller::Memory)),
                ("cpu", wanted.cpu_millis.map(u64::from), state(Controller::Cpu)),
                ("pids", wanted.pids.map(u64::from), state(Controller::Pids)),
                ("disk", wanted.disk_bytes, LimitState::Watched),
            ] {
                if value.is_some() {
                    let hits = record.limits.get(name).and_then(|limit| limit.hits);
                    record.limits.insert(name.to_owned(), Limit { value, state, hits });
                }
            }
        })
    }

    /// Takes back what was done; what does not go back is added to the error.
    fn undo(self, error: Error) -> Error {
        let group = self.shared.cgroup.as_ref();
        self.steps.into_iter().rev().fold(error, |error, step| {
            let (name, undone) = match (step, group) {
                (Step::Memory(before), Some(group)) => ("memory", group.limit_memory(before).is_ok()),
                (Step::Cpu(before), Some(group)) => ("cpu", group.limit_cpu(before).is_ok()),
                (Step::Pids(before), Some(group)) => ("pids", group.limit_pids(before).is_ok()),
                (Step::FileSize(size), _) => {
                    ("file size", prlimit(Some(size.agent), Resource::Fsize, size.now).is_ok())
                }
                (_, None) => return error,
            };
            if undone { error } else { error.with_left_behind(format!("the new {name} limit")) }
        })
    }
}

/// The limit on single files was not raised: that takes a right over the agent which only a privileged caller has.
fn not_raised(cause: std::io::Error) -> Error {
    if cause.kind() == std::io::ErrorKind::PermissionDenied {
        let why = "single files are held to the limit that the sandbox was made with, and this user can't raise that";
        return Error::unsupported(OPERATION, "a disk limit above the first one", why)
            .with_backend(crate::config::BACKEND)
            .with_hint("make a new sandbox with more, or run as root with `CAP_SYS_RESOURCE`");
    }
    io_error(OPERATION, "the agent's limit on file sizes", cause)
}

fn limit_memory(group: &Cgroup, bytes: u64) -> Result<()> {
    group.limit_memory(Some(bytes)).map(drop).map_err(|cause| {
        if cause.errno() == Some(rustix::io::Errno::BUSY.raw_os_error()) {
            below_use("memory", bytes, &cause.to_string())
        } else {
            engine(OPERATION, cause)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_on_files_are_read_as_the_kernel_prints_them() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax cpu time  unlimited  unlimited  seconds\n\
                    Max file size             10737418240          unlimited            bytes     \n";
        let limit = parse_file_size(text).unwrap();
        assert_eq!((limit.current, limit.maximum), (Some(10 << 30), None));
        assert!(parse_file_size("Max file size  many  few  bytes\n").is_none());
        assert!(parse_file_size("").is_none());
    }
}
