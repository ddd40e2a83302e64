use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities};

use super::subids;
use crate::cgroup;
use crate::ids::{IdMode, SubIds};
use crate::limits::{DEFAULT_INOTIFY_INSTANCES, DEFAULT_INOTIFY_WATCHES};
use crate::sys;

/// Whether user namespaces can be made, as far as settings tell. The launch itself is the proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserNamespaces {
    /// No setting speaks against it.
    Allowed,
    /// A security module allows them by profile only; a launch may be refused.
    Restricted { setting: &'static str },
    /// They are switched off.
    Disabled { setting: &'static str },
}

/// What a launch needs to know of the machine and of the calling process.
#[derive(Debug, Clone)]
pub struct Host {
    pub euid: u32,
    pub egid: u32,
    /// Release of the running kernel.
    pub kernel: String,
    pub user_namespaces: UserNamespaces,
    /// The caller's subordinate ids, where it has any in both files.
    pub subordinate: Option<SubIds>,
    pub newuidmap: Option<PathBuf>,
    pub newgidmap: Option<PathBuf>,
    pub cgroups: cgroup::Layout,
    /// 0: the kernel has no Landlock.
    pub landlock_abi: u32,
    pub seccomp: bool,
    /// Capabilities that making and ending a sandbox as root takes and this process lacks, by name; none for an ordinary user, who needs none.
    pub lacks_capabilities: Vec<&'static str>,
    /// The highest descriptor limit that this process may give.
    pub nofile_max: u64,
    /// What the kernel gives one user of the host.
    pub user_inotify: Inotify,
    /// What this process may have of what the kernel counts by user.
    pub user_counts: UserCounts,
}

/// Counts by user; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserCounts {
    /// Signals and timers that wait.
    pub signals: Option<u64>,
    /// Bytes in POSIX message queues.
    pub message_bytes: Option<u64>,
    /// Bytes that can't be swapped out.
    pub locked_bytes: Option<u64>,
}

/// Counts of inotify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inotify {
    pub instances: u32,
    pub watches: u32,
}

impl Host {
    /// Looks; starts no process, makes nothing, and takes a fraction of a millisecond.
    pub fn observe() -> Self {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        let is_root = user == 0;
        let nofile = getrlimit(Resource::Nofile);
        Self {
            euid: user,
            egid: group,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            user_namespaces: user_namespaces(is_root),
            subordinate: if is_root { None } else { subids::of(user) },
            newuidmap: if is_root { None } else { tool("newuidmap") },
            newgidmap: if is_root { None } else { tool("newgidmap") },
            cgroups: cgroup::Layout::observe(),
            landlock_abi: sys::landlock_abi(),
            seccomp: sys::seccomp_available(),
            lacks_capabilities: if is_root { lacking() } else { Vec::new() },
            nofile_max: nofile.maximum.unwrap_or(u64::MAX),
            user_inotify: Inotify {
                instances: setting("/proc/sys/fs/inotify/max_user_instances")
                    .unwrap_or(DEFAULT_INOTIFY_INSTANCES),
                watches: setting("/proc/sys/fs/inotify/max_user_watches").unwrap_or(DEFAULT_INOTIFY_WATCHES),
            },
            user_counts: UserCounts {
                signals: getrlimit(Resource::Sigpending).current,
                message_bytes: getrlimit(Resource::Msgqueue).current,
                locked_bytes: getrlimit(Resource::Memlock).current,
            },
        }
    }

    /// Whether each sandbox needs an id range of its own from the caller: true for root.
    pub fn needs_range(&self) -> bool {
        self.euid == 0
    }

    /// The best id mode for an ordinary user: subordinate ids where both files and both programs are there.
    pub fn user_id_mode(&self) -> IdMode {
        match (&self.subordinate, &self.newuidmap, &self.newgidmap) {
            (Some(ids), Some(_), Some(_)) => IdMode::Subordinate(ids.clone()),
            _ => IdMode::Single,
        }
    }
}

fn user_namespaces(is_root: bool) -> UserNamespaces {
    if !Path::new("/proc/self/ns/user").exists() {
        return UserNamespaces::Disabled { setting: "kernel option CONFIG_USER_NS" };
    }
    if setting("/proc/sys/user/max_user_namespaces") == Some(0) {
        return UserNamespaces::Disabled { setting: "user.max_user_namespaces" };
    }
    if !is_root {
        if setting("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
            return UserNamespaces::Disabled { setting: "kernel.unprivileged_userns_clone" };
        }
        if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
            return UserNamespaces::Restricted { setting: "kernel.apparmor_restrict_unprivileged_userns" };
        }
    }
    UserNamespaces::Allowed
}

/// What root uses: owners of the layers, folders of the sandbox's ids, ends of its processes, id maps, mounts, and its namespaces.
const ROOT_USES: &[(CapabilitySet, &str)] = &[
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::KILL, "CAP_KILL"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
];

/// Where they can't be told, all count as there: the launch itself is the proof.
fn lacking() -> Vec<&'static str> {
    let Ok(CapabilitySets { permitted, .. }) = capabilities(None) else { return Vec::new() };
    ROOT_USES.iter().filter(|(one, _)| !permitted.contains(*one)).map(|(_, name)| *name).collect()
}

fn setting(path: &str) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// These two carry privileges, so they are looked for where the system installs them and not along `PATH`.
fn tool(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.is_file())
}
