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
    /// Read-only layers, the topmost first. At least one, at most [`MAX_LOWERS`].
    pub lowers: Vec<Lower<'a>>,
    /// The host's programs on top of it, for the `host` template.
    pub host: Option<HostPrograms<'a>>,
}

/// Most read-only layers below one overlay. The kernel takes 500 (`OVL_MAX_STACK`), but one option of a mount has 256 bytes
/// (`fsconfig(2)`), and kernels before 6.7 take all layers in one.
pub const MAX_LOWERS: usize = 32;

/// A read-only layer.
#[derive(Debug, Clone, Copy)]
pub struct Lower<'a> {
    pub dir: BorrowedFd<'a>,
    pub owners: Owners,
}

/// How the owners of a layer's files on disk look inside, where mounts map ids (host root only). Elsewhere they are what the sandbox' user
/// namespace makes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Owners {
    /// 0 on disk is 0 inside, and so on.
    #[default]
    Inside,
    /// This id on disk is 0 inside, the next one 1, and so on for [`ID_COUNT`](crate::ID_COUNT) of them.
    From(u32),
}

impl<'a> From<BorrowedFd<'a>> for Lower<'a> {
    fn from(dir: BorrowedFd<'a>) -> Self {
        Self { dir, owners: Owners::Inside }
    }
}

/// The host's `/usr` and its kind, see decision 0005.
#[derive(Debug)]
pub struct HostPrograms<'a> {
    /// Laid over `/usr`: what was changed there before, the topmost first. Only where `/usr` is writable, see [`LAYERS_FOLDER`]'s layers.
    pub usr: Vec<Lower<'a>>,
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
    pub owners: MountOwners,
}

/// Who owns what is in a mount, as seen inside, where mounts map ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MountOwners {
    /// The owner of the folder on the host is the sandbox' user, nobody else has a name. A writable one takes away setuid and setgid bits.
    #[default]
    User,
    /// Ids as of a layer: storage that belongs to sandboxes alone, and that no program of the host's looks into.
    Stored(Owners),
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
