use std::path::Path;

use rustix::fd::BorrowedFd;

use crate::cgroup::Cgroup;
use crate::ids::IdMode;
use crate::limits::Limits;
use crate::rootfs::HostRoots;

/// Name of the folder that the engine makes in [`Spec::writable`].
pub const LAYERS_FOLDER: &str = "fs";

/// One sandbox to launch. All descriptors stay the caller's.
#[derive(Debug)]
pub struct Spec<'a> {
    /// Letters, digits, `-`, `_`.
    pub id: &'a str,
    /// At most 64 bytes.
    pub hostname: &'a str,
    pub ids: IdMode,
    pub root: Root<'a>,
    /// The sandbox's own folder, owned by the caller and 0700. The engine makes [`LAYERS_FOLDER`] in it, with `upper` and
    /// `work` (and `usr-upper`, `usr-work` where `/usr` is writable) and the right owner; what is there already is used on.
    pub writable: BorrowedFd<'a>,
    /// What the writable layers promise.
    pub durability: Durability,
    pub mounts: Vec<Mount<'a>>,
    /// The file that is executed inside as [`crate::handover::AGENT_PATH`]: absolute, statically linked.
    pub agent: &'a Path,
    /// Where the agent reads its configuration to the end: a pipe, whose other end says it when the sandbox is wanted, or a
    /// [`crate::sealed_memfd`].
    pub config: BorrowedFd<'a>,
    pub agent_listener: BorrowedFd<'a>,
    pub ctl_listener: BorrowedFd<'a>,
    /// Write end of the log.
    pub log: BorrowedFd<'a>,
    pub cgroup: Option<&'a Cgroup>,
    pub limits: Limits,
    pub network: Network,
}

/// What is in the sandbox's network namespace. There is never an interface but the loopback one, so there is no way out but
/// through sockets that somebody outside holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// Loopback, and nothing else.
    #[default]
    Loopback,
    /// The same, and the sockets that a gateway outside serves, see [`crate::network`].
    Gateway,
}

/// What the writable layers promise when the host goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A file that a program synced is on disk. The end of the sandbox then writes back the whole file system that the
    /// layers lie on, which takes as long as others have written much there.
    #[default]
    Synced,
    /// Syncing does nothing: for a sandbox that ends with its maker, whose files nobody will ask for. Such layers can't be
    /// launched again after the host went down.
    Volatile,
}

/// Where the root file system comes from.
#[derive(Debug)]
pub struct Root<'a> {
    /// Read-only layers, the topmost first. At least one.
    pub lowers: Vec<BorrowedFd<'a>>,
    /// The host's programs on top of it, for the `host` template.
    pub host: Option<HostPrograms<'a>>,
}

/// The host's `/usr` and its kind, see decision 0005.
#[derive(Debug)]
pub struct HostPrograms<'a> {
    /// Laid over `/usr`: our own additions.
    pub additions: BorrowedFd<'a>,
    pub roots: &'a HostRoots,
}

/// A folder or file of the host that the person asked for by name.
///
/// Its host path inside its file system shows in the sandbox's `/proc/self/mountinfo`; there is no way to hide that for
/// a live bind mount, and the person gave the path away on purpose.
#[derive(Debug, Clone, Copy)]
pub struct Mount<'a> {
    /// What [`crate::mount_source::open`] answered.
    pub source: BorrowedFd<'a>,
    /// Absolute path inside.
    pub target: &'a Path,
    pub access: Access,
}

/// What a sandbox may do with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    #[default]
    ReadOnly,
    /// Writing too. Then the sandbox can't set setuid or setgid bits anywhere, so that it can't plant a program on the
    /// host that runs as another user.
    ReadWrite,
}
