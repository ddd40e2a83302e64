//! Looks at processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::common::PATIENCE;
use crate::served::LOOK;

/// What a process has at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    /// Resident memory, in KiB.
    pub(crate) memory: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
}

impl Footprint {
    pub(crate) fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = memory.and_then(|size| size.trim().trim_end_matches(" kB").parse().ok());
        let count = |what: &str| entries(Path::new(&format!("/proc/{pid}/{what}"))).len();
        Self { memory: memory.expect("a size"), descriptors: count("fd"), threads: count("task") }
    }

    /// Once it has as few descriptors as before: connections that nobody uses are closed after a while.
    pub(crate) async fn settled(pid: u32, before: Option<Self>) -> Self {
        let mut last = Self::of(pid);
        if let Some(before) = before {
            let few = async || Self::of(pid).descriptors <= before.descriptors + SLACK;
            let what =
                format!("as few descriptors as before, {}, now {}", before.descriptors, last.descriptors);
            eventually(&what, few).await;
        } else {
            let still = async || {
                let seen = Self::of(pid);
                std::mem::replace(&mut last, seen).descriptors == seen.descriptors
            };
            steadily("the descriptors are the same for a while", still).await;
        }
        Self::of(pid)
    }
}

/// Descriptors more than before that are no leak: a look may meet one that is open for a moment.
const SLACK: usize = 4;
/// Looks in a row that find the same.
const STEADY: usize = 50;

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until a condition has held for a second.
async fn steadily(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let mut held = 0;
    eventually(what, async || {
        held = if condition().await { held + 1 } else { 0 };
        held >= STEADY
    })
    .await;
}

/// Processes that hold something in `folder` open, other than this one, and what is mounted there.
pub(crate) fn traces(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let me = std::process::id();
    let pids =
        entries(Path::new("/proc")).into_iter().filter_map(|path| path.file_name()?.to_str()?.parse().ok());
    for pid in pids.filter(|pid: &u32| *pid != me) {
        let open = entries(Path::new(&format!("/proc/{pid}/fd")));
        if open.iter().any(|fd| fs::read_link(fd).is_ok_and(|target| target.starts_with(folder))) {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            found.push(format!("process {pid} {}", line.replace('\0', " ")));
        }
    }
    let shown = folder.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    found.extend(mounts.lines().filter(|line| line.contains(&shown)).map(str::to_owned));
    for left in ["home/sandboxes", "home/trash"] {
        found.extend(entries(&folder.join(left)).iter().map(|path| path.display().to_string()));
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
