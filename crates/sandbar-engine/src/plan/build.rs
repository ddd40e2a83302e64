use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fd::BorrowedFd;

use super::counted::{Counted, counted};
use super::step::Step;
use super::{base, finish, kernel_files};
use crate::cgroup::Cgroup;
use crate::error::Error;
use crate::host::{Host, Inotify, UserNamespaces};
use crate::ids::IdMode;
use crate::limits::{DEFAULT_NOFILE, Enforced, Enforcement, Limits};
use crate::obstacle::Obstacle;
use crate::seccomp::{Instruction, SetidBits};
use crate::spec::{Access, MAX_LOWERS, Mount, MountOwners, Spec};

/// Where the layers are while the root file system is put together; it shows in the mount options inside.
pub(crate) const STAGE_LAYERS: &str = "/l";

/// Layers of `/usr` that are always there: our additions and the host's folder.
const HOST_USR: usize = 2;
/// Linux allows 64 bytes.
const MAX_HOSTNAME: usize = 64;

/// What a launch will do, in order.
#[derive(Debug)]
pub struct Plan<'a> {
    pub(crate) steps: Vec<Step>,
    pub(crate) trees: Vec<Tree<'a>>,
    pub(crate) writable: BorrowedFd<'a>,
    pub(crate) ids: IdMode,
    pub(crate) host: Host,
    pub(crate) cgroup: Option<&'a Cgroup>,
    pub(crate) filter: Vec<Instruction>,
    /// Log, configuration, agent listener, control listener.
    pub(crate) descriptors: [BorrowedFd<'a>; 4],
    pub(crate) counted: Counted,
    pub(super) enforced: Enforced,
    pub(super) inotify: Inotify,
    pub(super) nofile: u64,
}

/// A folder or file of the host that has a place in the sandbox.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    pub(crate) origin: TreeOrigin<'a>,
    pub(crate) map: TreeMap,
    pub(crate) attrs: u64,
}

#[derive(Debug)]
pub(crate) enum TreeOrigin<'a> {
    Fd(BorrowedFd<'a>),
    Path(PathBuf),
    /// The folder of writable layers, which the launch makes.
    Layers,
}

/// How owners on disk look inside, where ids are mapped by the mount (host root only).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeMap {
    /// As they are.
    Plain,
    /// 0 on disk is 0 inside, and so on.
    Sandbox,
    /// This id on disk is 0 inside, and so on.
    From(u32),
    /// The owner of the folder is `user` inside, nobody else has a name.
    Owner,
}

/// Orders the launch of `spec` on `host`. Nothing is touched; what can be refused beforehand is refused here.
pub fn plan<'a>(spec: &Spec<'a>, host: &Host) -> Result<Plan<'a>, Error> {
    check(spec, host)?;
    let read_write =
        |mount: &Mount<'_>| mount.access == Access::ReadWrite && mount.owners == MountOwners::User;
    let read_write = spec.mounts.iter().any(read_write);
    let setid = if read_write { SetidBits::Refused } else { SetidBits::Allowed };
    let enforced = enforced(spec);
    let mut building = Building { trees: Vec::new(), steps: Vec::new() };
    base::identity(spec, &mut building)?;
    base::root(spec, &mut building)?;
    kernel_files::add(spec, host, &mut building)?;
    base::agent(spec, &mut building)?;
    base::mounts(spec, &mut building)?;
    finish::add(spec, host, enforced.pids, &mut building)?;
    Ok(Plan {
        steps: building.steps,
        trees: building.trees,
        writable: spec.writable,
        ids: spec.ids.clone(),
        host: host.clone(),
        cgroup: spec.cgroup,
        filter: crate::seccomp::program(setid),
        descriptors: [spec.log, spec.config, spec.agent_listener, spec.ctl_listener],
        counted: counted(&spec.ids, host),
        enforced,
        inotify: kernel_files::inotify(spec, host),
        nofile: nofile(spec, host),
    })
}

/// Descriptors per process: as asked for, and never more than this process may give.
pub(super) fn nofile(spec: &Spec<'_>, host: &Host) -> u64 {
    spec.limits.nofile.unwrap_or(DEFAULT_NOFILE).min(host.nofile_max)
}

impl Plan<'_> {
    /// How far each limit will hold.
    pub fn enforced(&self) -> Enforced {
        self.enforced
    }

    /// What the sandbox gets of inotify.
    pub fn inotify(&self) -> Inotify {
        self.inotify
    }

    /// How many descriptors each process gets.
    pub fn nofile(&self) -> u64 {
        self.nofile
    }

    /// The steps as text, one a line, for diagnostics.
    pub fn describe(&self) -> Vec<String> {
        self.steps.iter().map(ToString::to_string).collect()
    }
}

/// Trees and steps as they come together.
#[derive(Debug)]
pub(super) struct Building<'a> {
    pub(super) trees: Vec<Tree<'a>>,
    pub(super) steps: Vec<Step>,
}

impl<'a> Building<'a> {
    pub(super) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub(super) fn tree(&mut self, origin: TreeOrigin<'a>, map: TreeMap, attrs: u64) -> usize {
        self.trees.push(Tree { origin, map, attrs });
        self.trees.len() - 1
    }
}

/// A path for the kernel. Everything that comes from outside has been checked for zero bytes before.
pub(super) fn c(text: impl AsRef<OsStr>) -> Result<CString, Error> {
    let text = text.as_ref();
    CString::new(text.as_bytes())
        .map_err(|_| Error::reason("plan sandbox", text.to_string_lossy(), "holds a zero byte"))
}

fn check(spec: &Spec<'_>, host: &Host) -> Result<(), Error> {
    let refuse = |what: &str, why: &str| Err(Error::reason("plan sandbox", what, why));
    if let UserNamespaces::Disabled { setting } = &host.user_namespaces {
        return Err(Error::reason("plan sandbox", *setting, "user namespaces are switched off")
            .with_obstacle(Obstacle::NamespacesOff { setting }));
    }
    check_root(host)?;
    if !host.seccomp {
        return Err(Error::reason("plan sandbox", "seccomp", "this kernel can't filter system calls")
            .with_obstacle(Obstacle::FilterMissing));
    }
    if spec.hostname.is_empty() || spec.hostname.len() > MAX_HOSTNAME || spec.hostname.contains(['\0', '\n'])
    {
        return refuse(spec.hostname, "a host name has 1 to 64 bytes on one line");
    }
    match (&spec.ids, host.euid) {
        (IdMode::Range { base, count }, 0) => {
            let end = base.checked_add(*count);
            if *base == 0 || *count <= crate::ids::USER_ID || end.is_none() {
                return refuse("id range", "must leave out host id 0 and hold id 1000");
            }
        }
        (IdMode::Range { .. }, _) => return refuse("id range", "only host root can map one"),
        (_, 0) => return refuse("id mode", "host root is never mapped into a sandbox; give it an id range"),
        (IdMode::Subordinate(_), _) => {
            if host.newuidmap.is_none() || host.newgidmap.is_none() {
                return Err(Error::reason("plan sandbox", "newuidmap", "not installed")
                    .with_obstacle(Obstacle::IdMapRefused));
            }
        }
        (IdMode::Single, _) => {}
    }
    if spec.root.lowers.is_empty() {
        return refuse("root", "has no layer");
    }
    let usr = spec.root.host.as_ref().map_or(0, |host| host.usr.len() + HOST_USR);
    // One more is the sandbox' own.
    if spec.root.lowers.len() + 1 > MAX_LOWERS || usr > MAX_LOWERS {
        return refuse("root", &format!("has more layers than the {MAX_LOWERS} that one overlay can have"));
    }
    if !spec.agent.is_absolute() || spec.agent.file_name().is_none() {
        return refuse(&spec.agent.to_string_lossy(), "the agent's path must be absolute");
    }
    for mount in &spec.mounts {
        check_target(mount.target)?;
    }
    Ok(())
}

/// Refuses what would fail half-way: without one of these a sandbox can be made and not be ended, or the other way round.
pub(super) fn check_root(host: &Host) -> Result<(), Error> {
    if host.lacks_capabilities.is_empty() {
        return Ok(());
    }
    let lacking = host.lacks_capabilities.join(", ");
    Err(Error::reason("plan sandbox", "root", format!("it lacks {lacking}"))
        .with_obstacle(Obstacle::RootPowerless))
}

fn check_target(target: &Path) -> Result<(), Error> {
    use std::path::Component;
    let refuse = |why: &str| Err(Error::reason("plan mount", target.to_string_lossy(), why));
    let mut components = target.components();
    if components.next() != Some(Component::RootDir) {
        return refuse("the path inside must be absolute");
    }
    if target.as_os_str().as_bytes().contains(&0) {
        return refuse("the path inside holds a zero byte");
    }
    let mut first = None;
    for component in components {
        match component {
            Component::Normal(name) => first = first.or(Some(name)),
            _ => return refuse("the path inside must not climb"),
        }
    }
    match first.and_then(OsStr::to_str) {
        None if first.is_none() => refuse("the root itself can't be covered"),
        Some("proc" | "sys" | "dev" | "run") => refuse("/proc, /sys, /dev and /run are the sandbox's own"),
        _ => Ok(()),
    }
}

fn enforced(spec: &Spec<'_>) -> Enforced {
    fn absent(limited: bool) -> Enforcement {
        if limited { Enforcement::Watched } else { Enforcement::None }
    }
    let Limits { memory_bytes, cpus_milli, pids, disk_bytes, .. } = &spec.limits;
    let without = [absent(memory_bytes.is_some()), absent(cpus_milli.is_some()), absent(pids.is_some())];
    let [memory, cpu, mut processes] = spec.cgroup.map_or(without, Cgroup::enforced);
    // With one id, the kernel's count of that user's processes in this user namespace is the count of the sandbox.
    if processes == Enforcement::Watched && spec.ids == IdMode::Single {
        processes = Enforcement::Enforced;
    }
    Enforced {
        memory,
        cpu,
        pids: processes,
        disk: absent(disk_bytes.is_some()),
        nofile: Enforcement::Enforced,
        inotify: Enforcement::Enforced,
    }
}
