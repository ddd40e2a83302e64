//! What a sandbox is made of before it is anybody's: its folder, its id range, its control groups, and its namespaces with the agent in them, which
//! waits for its configuration. There is no record yet, so no reader sees it; an agent whose shim ends without having configured it ends too.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use sandbar_core::{Error, ErrorKind, Limit, LimitState, MountAccess, Result};
use sandbar_engine::{
    Cgroup, Durability, Enforced, Enforcement, Host, IdMode, Launched, Mount, MountOwners, Network, Obstacle,
    Spec,
};

use super::agent;
use super::pipes::Pipes;
use super::protocol::{LimitOrders, MountOrder, Shape, VolumeOrder};
use crate::doctor;
use crate::error::{engine, engine_as, fail, io_error};
use crate::home::{AgentMark, Folder, Home, Lock};
use crate::id::new_id;
use crate::mounts;
use crate::store::Volume;
use crate::teardown::{self, Ending, Groups};
use crate::template::Base;

/// Ids that are tried: one is taken by chance never, and cleaned away under its maker hardly ever.
const ID_ATTEMPTS: usize = 8;

/// A sandbox without a name, a record or a configuration. Dropped, it is taken back, unless it was taken apart before.
#[derive(Debug)]
pub(super) struct Prepared {
    parts: Option<Parts>,
}

/// Whether it has to have what a gateway serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gateway {
    /// A policy allows something.
    Required,
    /// Nothing is allowed so far: where this machine has no packet filter, there is no way to allow something later, and that is all.
    IfPossible,
}

/// What it consists of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) home: Home,
    pub(super) folder: Folder,
    pub(super) lock: Lock,
    pub(super) shape: Shape,
    pub(super) host: Host,
    pub(super) base: Base,
    pub(super) ids: IdMode,
    pub(super) slot: Option<u32>,
    pub(super) cgroup: Option<Cgroup>,
    pub(super) agent: Launched,
    /// How far each limit holds.
    pub(super) limits: BTreeMap<String, Limit>,
    /// What it has to do without on this machine.
    pub(super) fallbacks: Vec<String>,
    /// What the agent says comes out here.
    pub(super) log: OwnedFd,
    /// What the agent is told goes in here, once.
    pub(super) config: Option<OwnedFd>,
}

/// Makes everything up to the agent's start. A failure leaves nothing, or its error names what is left.
pub(super) fn prepare(home: Home, shape: Shape, pipes: &Pipes, gateway: Gateway) -> Result<Prepared> {
    let host = Host::observe();
    let sources = mounts::open_all(&shape.mounts, home.path())?;
    let base = Base::observe()?;
    let (folder, lock) = claim_folder(&home)?;
    let place = Place { home: &home, folder: &folder, shape: &shape, host: &host, base: &base };
    match place.ids().and_then(|ids| place.fill(ids, Layers::New, &sources, pipes, gateway)) {
        Ok(filled) => {
            let parts = filled.into_parts(home, folder, lock, shape, host, base);
            Ok(Prepared { parts: Some(parts) })
        }
        // Nothing of it runs: a launch that fails leaves no process.
        Err(error) => {
            Err(match teardown::tear_down(&home, &folder, None, &lock, Groups::Unknown, Ending::default()) {
                Ok(()) => error,
                Err(left) => left.left_behind().iter().cloned().fold(error, Error::with_left_behind),
            })
        }
    }
}

/// Launches a sandbox again that is there and does not run: over its own layers, with its own ids. A failure leaves no process.
pub(super) fn prepare_again(
    home: Home,
    folder: Folder,
    lock: Lock,
    ids: (IdMode, Option<u32>),
    shape: Shape,
    pipes: &Pipes,
    gateway: Gateway,
) -> Result<Parts> {
    let host = Host::observe();
    let sources = mounts::open_all(&shape.mounts, home.path())?;
    let base = Base::observe()?;
    let place = Place { home: &home, folder: &folder, shape: &shape, host: &host, base: &base };
    let filled = match place.fill(ids, Layers::Kept, &sources, pipes, gateway) {
        Ok(filled) => filled,
        Err(error) => {
            return Err(match super::start::remove_groups(folder.id()) {
                Ok(()) => error,
                Err(left) => error.with_left_behind(left.to_string()),
            });
        }
    };
    Ok(filled.into_parts(home, folder, lock, shape, host, base))
}

/// Another agent for a sandbox that has one: over its writable layers as they are now, in its control groups, with its listeners.
pub(super) fn relaunch(
    shared: &super::shared::Shared,
    shape: &Shape,
    listeners: [BorrowedFd<'_>; 2],
) -> Result<(Run, Base, Host)> {
    let host = Host::observe();
    let sources = mounts::open_all(&shape.mounts, shared.home.path())?;
    let base = Base::observe()?;
    let (ids, has_gateway) =
        shared.look(|record| (record.private.ids.clone(), record.egress.gateway.is_some()));
    let gateway = if has_gateway { Gateway::Required } else { Gateway::IfPossible };
    let place = Place { home: &shared.home, folder: &shared.folder, shape, host: &host, base: &base };
    let run = place.launch(&ids, shared.cgroup.as_ref(), listeners, &sources, None, gateway)?;
    Ok((run, base, host))
}

impl Prepared {
    /// Whether a sandbox of this shape in this data folder can be made of it, as things are now.
    pub(super) fn fits(&self, home: &Home, shape: &Shape, gateway: Gateway) -> bool {
        let Some(parts) = &self.parts else { return false };
        parts.shape == *shape
            && (gateway == Gateway::IfPossible || parts.agent.network.is_some())
            && parts.home.path() == home.path()
            && parts.folder.is_in_place(home).unwrap_or(false)
            && !has_ended(&parts.agent.pidfd)
            && Base::observe().is_ok_and(|base| base == parts.base)
    }

    /// What it consists of, to make a sandbox of it.
    pub(super) fn into_parts(mut self) -> Option<Parts> {
        self.parts.take()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let Some(Parts { home, folder, lock, cgroup, agent, .. }) = self.parts.take() else { return };
        // Nobody asked for it, so there is nobody to tell; what can't be removed, the next command that writes removes.
        let mark = AgentMark::new(agent.pid, agent.start_time);
        if mark.and_then(|mark| teardown::end_agent(&mark)).is_ok() {
            let _ = teardown::tear_down(
                &home,
                &folder,
                None,
                &lock,
                Groups::Known(cgroup.as_ref()),
                Ending::default(),
            );
        }
    }
}

/// Where a sandbox is being put together, and from what.
struct Place<'a> {
    home: &'a Home,
    folder: &'a Folder,
    shape: &'a Shape,
    host: &'a Host,
    base: &'a Base,
}

/// Which writable layers it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layers {
    New,
    /// Those that are there.
    Kept,
}

struct Filled {
    ids: IdMode,
    slot: Option<u32>,
    cgroup: Option<Cgroup>,
    agent: Launched,
    limits: BTreeMap<String, Limit>,
    fallbacks: Vec<String>,
    log: OwnedFd,
    config: Option<OwnedFd>,
}

/// An agent that waits for its configuration, and what came of its launch.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) agent: Launched,
    limits: BTreeMap<String, Limit>,
    pub(super) fallbacks: Vec<String>,
    /// What the agent says comes out here.
    pub(super) log: OwnedFd,
    /// What the agent is told goes in here, once.
    pub(super) config: Option<OwnedFd>,
}

impl Filled {
    fn into_parts(
        self,
        home: Home,
        folder: Folder,
        lock: Lock,
        shape: Shape,
        host: Host,
        base: Base,
    ) -> Parts {
        let Self { ids, slot, cgroup, agent, limits, fallbacks, log, config } = self;
        Parts {
            home,
            folder,
            lock,
            shape,
            host,
            base,
            ids,
            slot,
            cgroup,
            agent,
            limits,
            fallbacks,
            log,
            config,
        }
    }
}

impl Place<'_> {
    fn fill(
        &self,
        (ids, slot): (IdMode, Option<u32>),
        layers: Layers,
        sources: &[OwnedFd],
        pipes: &Pipes,
        gateway: Gateway,
    ) -> Result<Filled> {
        super::log::redirect(self.folder);
        if layers == Layers::New {
            // Without them it makes its own.
            let _ = self.home.reuse_layers(self.folder, &ids);
        }
        let limits = self.shape.limits.to_engine();
        let cgroup = Cgroup::create(&self.host.cgroups, self.folder.id().as_str(), &limits)
            .map_err(|cause| engine("create", cause))?;
        let (of_agent, of_ctl) = agent::listeners(self.home, self.folder)?;
        let listeners = [of_agent.as_fd(), of_ctl.as_fd()];
        let run = self.launch(&ids, cgroup.as_ref(), listeners, sources, Some(pipes), gateway)?;
        let Run { agent, limits, fallbacks, log, config } = run;
        Ok(Filled { ids, slot, cgroup, agent, limits, fallbacks, log, config })
    }

    fn launch(
        &self,
        ids: &IdMode,
        cgroup: Option<&Cgroup>,
        [agent_listener, ctl_listener]: [BorrowedFd<'_>; 2],
        sources: &[OwnedFd],
        pipes: Option<&Pipes>,
        gateway: Gateway,
    ) -> Result<Run> {
        let boot = self.shape.boot.open(self.home, self.base, ids)?;
        let open = |order: &VolumeOrder| Volume::open_for(self.home, &order.name, ids);
        let volumes = self.shape.volumes.iter().map(open).collect::<Result<Vec<_>>>()?;
        let (log, log_write) = pipe()?;
        let (config_read, config) = pipe()?;
        let executable = own_file()?;
        let mut spec = Spec {
            id: self.folder.id().as_str(),
            hostname: self.folder.id().as_str(),
            ids: ids.clone(),
            root: boot.root(self.base),
            writable: self.folder.as_fd(),
            // Nobody can ask for its files after a crash of the host: it is destroyed with its maker.
            durability: if self.shape.owned { Durability::Volatile } else { Durability::Synced },
            mounts: self.mounts(sources, &volumes),
            agent: &executable,
            config: config_read.as_fd(),
            agent_listener,
            ctl_listener,
            log: log_write.as_fd(),
            cgroup,
            limits: self.shape.limits.to_engine(),
            network: Network::Gateway,
        };
        let mut plan = sandbar_engine::plan(&spec, self.host).map_err(|cause| engine("create", cause))?;
        let enforced = plan.enforced();
        let mut report = limits_report(&self.shape.limits, enforced);
        let kernels = [
            ("nofile", plan.nofile(), enforced.nofile),
            ("inotify", plan.inotify().watches.into(), enforced.inotify),
        ];
        report.extend(kernels.map(|(name, value, state)| limit(name, Some(value), state, false)));
        let writable = self.shape.mounts.iter().any(|mount| mount.access == MountAccess::ReadWrite);
        let mut fallbacks = doctor::fallbacks(self.host, &spec.ids, enforced, writable);
        insist(&self.shape.limits, enforced, self.host)?;
        pipes.map_or(Ok(()), still_wanted)?;
        let launched = match sandbar_engine::launch(plan) {
            Err(cause)
                if cause.obstacle() == Some(Obstacle::PacketFilterMissing)
                    && gateway == Gateway::IfPossible =>
            {
                fallbacks.push(doctor::NO_GATEWAY.to_owned());
                spec.network = Network::Loopback;
                plan = sandbar_engine::plan(&spec, self.host).map_err(|cause| engine("create", cause))?;
                sandbar_engine::launch(plan)
            }
            launched => launched,
        };
        let agent = launched.map_err(|cause| {
            if cause.is_refused_by_link() {
                engine_as(ErrorKind::InvalidInput, "create", cause)
            } else {
                engine("create", cause)
            }
        })?;
        Ok(Run { agent, limits: report, fallbacks, log, config: Some(config) })
    }

    /// What is mounted, the outer before the inner.
    fn mounts<'a>(&'a self, sources: &'a [OwnedFd], volumes: &'a [Volume]) -> Vec<Mount<'a>> {
        let folders = self.shape.mounts.iter().zip(sources).map(|(mount, source)| to_engine(mount, source));
        let stored = self.shape.volumes.iter().zip(volumes).map(|(order, volume)| Mount {
            source: volume.data.as_fd(),
            target: Path::new(OsStr::from_bytes(&order.target)),
            access: access(order.access),
            owners: MountOwners::Stored(volume.document.ids.owners()),
        });
        let mut mounts: Vec<_> = folders.chain(stored).collect();
        mounts.sort_by_key(|mount| mount.target);
        mounts
    }

    /// How ids are mapped, and the number of the range. With a writable mount an ordinary user's sandbox has one id, so that its user is the
    /// mount's owner on the host; anything else could write nothing there.
    fn ids(&self) -> Result<(IdMode, Option<u32>)> {
        if !self.host.needs_range() {
            let writable = self.shape.mounts.iter().any(|mount| mount.access == MountAccess::ReadWrite);
            return Ok((if writable { IdMode::Single } else { self.host.user_id_mode() }, None));
        }
        let claimed = self
            .home
            .claim_slot(self.folder.id())
            .map_err(|cause| io_error("create", &format!("`{}/ids`", self.home.path().display()), cause))?;
        let (slot, first) = claimed.ok_or_else(|| {
            fail(ErrorKind::LimitExceeded, "create", "all ranges of host ids are in use")
                .with_hint("destroy sandboxes that are not needed")
        })?;
        Ok((IdMode::range(first), Some(slot)))
    }
}

/// The caller may have gone away while this took its time.
pub(super) fn still_wanted(pipes: &Pipes) -> Result<()> {
    if pipes.caller_is_gone() {
        return Err(fail(ErrorKind::Conflict, "create", "the caller is gone"));
    }
    Ok(())
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    !matches!(poll(&mut watched, Some(&Timespec::default())), Ok(0))
}

fn claim_folder(home: &Home) -> Result<(Folder, Lock)> {
    for _ in 0..ID_ATTEMPTS {
        let id = new_id()?;
        let made = Folder::create(home, &id)
            .map_err(|cause| io_error("create", &format!("`{}`", home.folder_path(&id).display()), cause))?;
        if let Some(made) = made {
            return Ok(made);
        }
    }
    Err(fail(ErrorKind::Unexpected, "create", format!("no new id after {ID_ATTEMPTS} attempts")))
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|cause| io_error("create", "a pipe", cause))
}

/// The executable itself: it is the agent, too.
fn own_file() -> Result<PathBuf> {
    std::fs::read_link("/proc/self/exe").map_err(|cause| io_error("create", "`/proc/self/exe`", cause))
}

fn to_engine<'a>(mount: &'a MountOrder, source: &'a OwnedFd) -> Mount<'a> {
    Mount {
        source: source.as_fd(),
        target: Path::new(OsStr::from_bytes(&mount.target)),
        access: access(mount.access),
        owners: MountOwners::User,
    }
}

fn access(access: MountAccess) -> sandbar_engine::Access {
    match access {
        MountAccess::ReadOnly => sandbar_engine::Access::ReadOnly,
        MountAccess::ReadWrite => sandbar_engine::Access::ReadWrite,
    }
}

/// Refuses limits that were demanded and are not kept by the kernel here.
fn insist(limits: &LimitOrders, enforced: Enforced, host: &Host) -> Result<()> {
    for name in &limits.demanded {
        let state = match name.as_str() {
            "memory" => enforced.memory,
            "cpu" => enforced.cpu,
            "pids" => enforced.pids,
            _ => enforced.disk,
        };
        if state != Enforcement::Enforced {
            return Err(mounts::not_enforced(name, state == Enforcement::Watched, host));
        }
    }
    Ok(())
}

fn limits_report(limits: &LimitOrders, enforced: Enforced) -> BTreeMap<String, Limit> {
    // Nothing slows a processor hog down where no control group does, so nothing is what is said.
    let cpu = if enforced.cpu == Enforcement::Watched { Enforcement::None } else { enforced.cpu };
    BTreeMap::from([
        limit("memory", limits.memory_bytes, enforced.memory, limits.memory_bytes.is_some()),
        limit("cpu", limits.cpu_millis.map(u64::from), cpu, false),
        limit("pids", limits.pids.map(u64::from), enforced.pids, false),
        limit("disk", limits.disk_bytes, enforced.disk, limits.disk_bytes.is_some()),
    ])
}

fn limit(name: &str, value: Option<u64>, state: Enforcement, counted: bool) -> (String, Limit) {
    let state = match state {
        Enforcement::Enforced => LimitState::Enforced,
        Enforcement::Watched => LimitState::Watched,
        Enforcement::None => LimitState::None,
    };
    (name.to_owned(), Limit { value, state, hits: counted.then_some(0) })
}
