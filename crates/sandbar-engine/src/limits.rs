use serde::{Deserialize, Serialize};

/// What one sandbox may use. `None` is no limit of ours.
///
/// Which of these the kernel really enforces depends on the host; [`crate::plan::Plan::enforced`] says it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all processes together with the page cache they cause, in bytes.
    pub memory_bytes: Option<u64>,
    /// Processor time in thousandths of one processor.
    pub cpus_milli: Option<u32>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// The biggest file in bytes. The kernel knows no sum over files here; that is watched by the caller.
    pub disk_bytes: Option<u64>,
    /// Descriptors per process; [`DEFAULT_NOFILE`] where not given, never above what this process may give.
    pub nofile: Option<u64>,
    /// Inotify watches of the whole sandbox; [`DEFAULT_INOTIFY_WATCHES`] where not given.
    pub inotify_watches: Option<u32>,
    /// Inotify instances of the whole sandbox; [`DEFAULT_INOTIFY_INSTANCES`] where not given.
    pub inotify_instances: Option<u32>,
}

/// The least processor limit, in thousandths of one processor: the kernel refuses quotas under a millisecond of its period
/// of 100 (`min_cfs_quota_period` in `kernel/sched/core.c`).
pub const MIN_CPUS_MILLI: u32 = 10;
/// Descriptors per process: a JVM and a file watcher are content, and a descriptor bomb stays small in kernel memory.
pub const DEFAULT_NOFILE: u64 = 65_536;
/// What development servers ask for (their error messages name this number).
pub const DEFAULT_INOTIFY_WATCHES: u32 = 524_288;
/// The kernel's own count for a user.
pub const DEFAULT_INOTIFY_INSTANCES: u32 = 128;
/// Sandboxes of an ordinary user share that user's allowance of inotify and of what else the kernel counts by user; each
/// gets at most this part of it, so that one alone can't take it all.
pub(crate) const SHARE_OF_USER: u32 = 4;

/// What all sandboxes of an ordinary user together leave to that user: the other part of what the kernel counts by user.
pub(crate) const SHARE_OF_ALL: u32 = 2;
/// Signals and timers that wait, of one id; each is some 100 bytes of the kernel's. Runtimes with thousands of timers
/// keep them in one.
pub(crate) const PENDING_SIGNALS: u64 = 16_384;
/// Bytes in POSIX message queues: the kernel's own default (`MQ_BYTES_MAX`).
pub(crate) const MESSAGE_QUEUE_BYTES: u64 = 819_200;
/// Bytes that can't be swapped out: the kernel's own default (`MLOCK_LIMIT`, since Linux 5.16).
pub(crate) const LOCKED_BYTES: u64 = 8 << 20;
/// Pseudo-terminals of one sandbox. The kernel has 4,096 for the whole machine (`kernel.pty.max`), a terminal multiplexer
/// with a window for everything needs a few dozen.
pub(crate) const MAX_TERMINALS: u32 = 64;

/// How far a limit holds on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The kernel refuses to go beyond it.
    Enforced,
    /// The kernel does not know it; whoever started the sandbox has to look.
    Watched,
    /// There is no such limit.
    None,
}

/// How far each limit of one sandbox holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    pub memory: Enforcement,
    pub cpu: Enforcement,
    pub pids: Enforcement,
    pub disk: Enforcement,
    pub nofile: Enforcement,
    pub inotify: Enforcement,
}
