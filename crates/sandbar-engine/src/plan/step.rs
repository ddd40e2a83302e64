use std::ffi::{CStr, CString};
use std::fmt;

/// One thing the child does on its way to the agent. Everything it needs is here: the child allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    ResetSignals,
    JoinCgroups,
    /// Own preference of the kernel's when memory runs out.
    OomScore(CString),
    NewSession,
    NewCgroupNamespace,
    Hostname(CString),
    LoopbackUp,
    /// Until the parent has written the id maps.
    AwaitMaps,
    BecomeRoot,
    NotDumpable,
    PrivateMounts,
    /// A file system in memory becomes `/`, the host's is at `/old`.
    EnterStage,
    Dir {
        path: CString,
        mode: u16,
    },
    File {
        path: CString,
        mode: u16,
        bytes: Vec<u8>,
    },
    Link {
        target: CString,
        path: CString,
    },
    /// A file system of its own.
    Mount {
        kind: &'static CStr,
        options: Vec<(&'static CStr, Option<CString>)>,
        attrs: u64,
        target: CString,
    },
    Bind(Bind),
    /// More attributes for the mount at `path`.
    Restrict {
        path: CString,
        attrs: u64,
    },
    /// A kernel setting, absent on some kernels.
    Setting {
        path: CString,
        value: CString,
    },
    /// A kernel setting that the sandbox's root may change on newer kernels; where it can't be changed it stays.
    SettingIfMay {
        path: CString,
        value: CString,
    },
    /// Opens a setting for [`Step::LastSetting`].
    HoldSetting {
        path: CString,
    },
    /// Writes what was held, once the file itself is out of reach.
    LastSetting {
        value: CString,
    },
    /// `/new` becomes `/` and everything of the host is gone.
    LeaveHost,
    /// A file in the sandbox that has to say this, whatever an earlier run left there.
    OwnFile {
        path: CString,
        bytes: Vec<u8>,
    },
    OwnFolder {
        path: CString,
        uid: u32,
        gid: u32,
    },
    Limit {
        resource: Limited,
        value: u64,
    },
    Descriptors,
    DropCapabilities {
        keep: u64,
    },
    NoNewPrivileges,
    Landlock {
        abi: u32,
    },
    Filter,
    /// Notes which file is there, for [`Step::Execute`].
    NoteAgent(CString),
    /// The file that was noted, and no other that is at its place by now.
    Execute(CString),
    /// A message to the routing of this network namespace.
    Route(Vec<u8>),
    /// A batch for the packet filter of this network namespace.
    PacketFilter(Vec<u8>),
    /// Makes the sockets that a gateway outside serves, and hands them out.
    NetworkSockets,
    /// In place of an agent: all went well.
    Done,
}

/// Some part of another tree at a place of the new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) source: Source,
    pub(crate) attrs: u64,
    pub(crate) target: Target,
    pub(crate) presence: Presence,
}

/// Whether it may be missing on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Has to be there.
    Required,
    /// Skipped where source or target is not there.
    IfPresent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// One of the plan's trees.
    Tree(usize),
    /// A path as the child sees it at that moment.
    Path(CString),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// No component may be a link.
    Exact(CString),
    /// Beneath `/new`, made where it is not there. Links of the root file system are followed in it, no others are. Each prefix of the path,
    /// the last is the whole.
    InRoot(Vec<CString>),
}

/// Resource limits of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limited {
    OpenFiles,
    FileSize,
    CoreSize,
    Processes,
    PendingSignals,
    MessageBytes,
    LockedBytes,
    /// The best real-time priority, and the best nice value.
    RealTime,
    Nice,
}

/// For errors: what was tried, and to what.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |path: &CString| path.to_string_lossy().into_owned();
        match self {
            Self::ResetSignals => write!(f, "reset signals"),
            Self::JoinCgroups => write!(f, "join control groups"),
            Self::OomScore(_) => write!(f, "set the out-of-memory preference"),
            Self::NewSession => write!(f, "start a session"),
            Self::NewCgroupNamespace => write!(f, "make a control group namespace"),
            Self::Hostname(_) => write!(f, "set the host name"),
            Self::LoopbackUp => write!(f, "bring the loopback interface up"),
            Self::AwaitMaps => write!(f, "wait for the id maps"),
            Self::BecomeRoot => write!(f, "take the ids of the sandbox's root"),
            Self::NotDumpable => write!(f, "hide from debuggers"),
            Self::PrivateMounts => write!(f, "separate mounts from the host"),
            Self::EnterStage => write!(f, "enter a staging root"),
            Self::Dir { path, .. } => write!(f, "make folder {}", shown(path)),
            Self::File { path, .. } => write!(f, "make file {}", shown(path)),
            Self::Link { path, .. } => write!(f, "make link {}", shown(path)),
            Self::Mount { kind, target, .. } => {
                write!(f, "mount {} at {}", kind.to_string_lossy(), shown(target))
            }
            Self::Bind(bind) => match &bind.target {
                Target::Exact(path) => write!(f, "mount at {}", shown(path)),
                Target::InRoot(paths) => write!(f, "mount at /{}", paths.last().map_or(String::new(), shown)),
            },
            Self::Restrict { path, .. } => write!(f, "restrict the mount {}", shown(path)),
            Self::Setting { path, .. } | Self::SettingIfMay { path, .. } => write!(f, "set {}", shown(path)),
            Self::HoldSetting { path } => write!(f, "open {}", shown(path)),
            Self::LastSetting { .. } => write!(f, "forbid more mount namespaces"),
            Self::LeaveHost => write!(f, "leave the host's root"),
            Self::OwnFile { path, .. } => write!(f, "write {}", shown(path)),
            Self::OwnFolder { path, .. } => write!(f, "hand over {}", shown(path)),
            Self::Limit { resource, .. } => write!(f, "set the resource limit {resource:?}"),
            Self::Descriptors => write!(f, "lay out descriptors"),
            Self::DropCapabilities { .. } => write!(f, "drop capabilities"),
            Self::NoNewPrivileges => write!(f, "forbid new privileges"),
            Self::Landlock { .. } => write!(f, "confine with Landlock"),
            Self::Filter => write!(f, "install the system call filter"),
            Self::NoteAgent(path) => write!(f, "note {}", shown(path)),
            Self::Execute(path) => write!(f, "execute {}", shown(path)),
            Self::Route(_) => write!(f, "route to the gateway"),
            Self::PacketFilter(_) => write!(f, "set up the packet filter"),
            Self::NetworkSockets => write!(f, "open the sockets of the gateway"),
            Self::Done => write!(f, "end"),
        }
    }
}
