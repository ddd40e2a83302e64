use std::fs;
use std::path::{Path, PathBuf};

use sandbar_core::SandboxId;

use super::Bed;

/// What is left of the sandboxes of a data folder.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) processes: Vec<String>,
    pub(crate) mounts: Vec<String>,
    pub(crate) groups: Vec<PathBuf>,
}

impl Traces {
    /// Looks. Groups are those of ids that this folder has, or had in its trash; so call [`Traces::groups_of`] for ids that are gone.
    pub(crate) fn of(home: &Path) -> Self {
        let mut files = Vec::new();
        for folder in ["sandboxes", "names", "ids", "trash"] {
            files.extend(entries(&home.join(folder)));
        }
        files.extend(
            entries(&home.join("templates/host"))
                .into_iter()
                .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))),
        );
        // Of volumes, what is being made and removed: they themselves outlive sandboxes.
        files.extend(
            entries(&home.join("volumes"))
                .into_iter()
                .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))),
        );
        let shown = home.display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self {
            files,
            processes: processes_with(home),
            mounts: mounts.lines().filter(|line| line.contains(&shown)).map(str::to_owned).collect(),
            groups: Vec::new(),
        }
    }

    /// Control groups of a sandbox.
    pub(crate) fn groups_of(id: &SandboxId) -> Vec<PathBuf> {
        entries(Path::new("/sys/fs/cgroup"))
            .into_iter()
            .chain([PathBuf::from("/sys/fs/cgroup")])
            .map(|hierarchy| hierarchy.join("sandbar").join(id.as_str()))
            .filter(|group| group.exists())
            .collect()
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.processes.is_empty() && self.mounts.is_empty() && self.groups.is_empty()
    }
}

/// Processes other than this one that hold something in `folder` open, with their command lines.
fn processes_with(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for pid in pids() {
        if pid == i32::try_from(std::process::id()).unwrap_or(0) {
            continue;
        }
        let holds = entries(Path::new(&format!("/proc/{pid}/fd")))
            .iter()
            .any(|fd| fs::read_link(fd).is_ok_and(|target| target.starts_with(folder)));
        if holds {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            found.push(format!("{pid} {}", line.replace('\0', " ")));
        }
    }
    found
}

/// The shim of a sandbox: the process that holds its lock open, other than for a moment.
pub(crate) fn shim_pid(bed: &Bed, id: &SandboxId) -> Option<i32> {
    let lock = bed.folder(id).join("lock");
    pids().into_iter().filter(|pid| *pid != i32::try_from(std::process::id()).unwrap_or(0)).find(|pid| {
        entries(Path::new(&format!("/proc/{pid}/fd")))
            .iter()
            .any(|fd| fs::read_link(fd).is_ok_and(|to| to == lock))
    })
}

/// The agent of a sandbox, by its record.
pub(crate) fn agent_pid(bed: &Bed, id: &SandboxId) -> i32 {
    let pid = bed.stored(id)["private"]["agent"]["pid"].as_i64().expect("an agent");
    i32::try_from(pid).expect("a process number")
}

/// All processes below `pid`.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut pending = vec![pid];
    while let Some(pid) = pending.pop() {
        for task in entries(Path::new(&format!("/proc/{pid}/task"))) {
            let children = fs::read_to_string(task.join("children")).unwrap_or_default();
            let children = children.split_ascii_whitespace().filter_map(|child| child.parse::<i32>().ok());
            for child in children {
                found.push(child);
                pending.push(child);
            }
        }
    }
    found
}

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

/// Whether a process is over with all its threads, and with that everything that it held open is closed. A look at what it has open is
/// not enough: that is empty a moment before the locks are free.
pub(crate) fn has_ended(pid: i32) -> bool {
    !is_alive(pid) && entries(Path::new(&format!("/proc/{pid}/task"))).len() <= 1
}

/// Kills a process at once; one that is gone already is fine.
pub(crate) fn kill(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Whether sandboxes of this user have a root inside.
pub(crate) fn has_root_inside() -> bool {
    let host = sandbar_engine::Host::observe();
    host.needs_range() || host.user_id_mode().has_root()
}

fn pids() -> Vec<i32> {
    entries(Path::new("/proc"))
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .filter(|pid| is_alive(*pid))
        .collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path()).collect()
}
