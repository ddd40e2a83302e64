use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::pipe::{PipeFlags, pipe_with};
use sandbar_core::{
    DeadlineAction, Error, ErrorKind, Limit, LimitState, MountAccess, Result, SandboxId, SandboxRecord, State,
};
use sandbar_engine::{
    Cgroup, Durability, Enforced, Enforcement, Host, HostPrograms, IdMode, Launched, Mount, Root, Spec,
};
use serde_json::Map;

use super::agent;
use super::guard::{Guard, Wish};
use super::listener::Listener;
use super::pipes::Pipes;
use super::protocol::{CreateOrders, LimitOrders, MountOrder};
use super::shared::Shared;
use crate::error::{engine, fail, io_error};
use crate::home::{AgentMark, EGRESS, Folder, Home, Lock, Private, StoredRecord, isolation, now};
use crate::id::new_id;
use crate::teardown::Groups;
use crate::template::{self, Base};
use crate::{mounts, teardown};

/// Ids that are tried: one is taken by chance never, and cleaned away under its maker hardly ever.
const ID_ATTEMPTS: usize = 8;

/// Makes the sandbox up to its running agent. A failure leaves nothing, or its error names what is left.
pub(super) fn create(home: Home, orders: &CreateOrders, pipes: &Pipes) -> Result<Guard> {
    let host = Host::observe();
    let sources = mounts::open_all(&orders.mounts, home.path())?;
    // Before anything is made: an address that can't be had is known now, and is kept from now on.
    let listeners =
        orders.ports.iter().map(|port| Listener::bind("create", (*port).into())).collect::<Result<_>>()?;
    let base = Base::observe()?;
    let (folder, lock) = claim_folder(&home)?;
    let mut making = Making { home: &home, folder: &folder, lock: &lock, record: None };
    let made = making.make(&host, &base, orders, &sources, pipes);
    match (made, making.record.take()) {
        (Ok((launched, cgroup, log)), Some(record)) => {
            let wish = Wish { ports: listeners, lifetime_ms: orders.lifetime_ms };
            Ok(Guard::of_new(Shared::new(home, folder, lock, record, cgroup, launched.pidfd), wish, log))
        }
        (Ok(_), None) => Err(making.undo(fail(ErrorKind::Unexpected, "create", "the record is lost"), None)),
        (Err(error), record) => Err(making.undo(error, record)),
    }
}

/// A sandbox in the making, with what an undoing has to know.
struct Making<'a> {
    home: &'a Home,
    folder: &'a Folder,
    lock: &'a Lock,
    record: Option<StoredRecord>,
}

impl Making<'_> {
    fn make(
        &mut self,
        host: &Host,
        base: &Base,
        orders: &CreateOrders,
        sources: &[OwnedFd],
        pipes: &Pipes,
    ) -> Result<(Launched, Option<Cgroup>, OwnedFd)> {
        super::log::redirect(self.folder);
        let (ids, slot) = self.ids(host, orders)?;
        let shim = own_mark()?;
        let record = new_record(self.folder.id(), orders, base, &ids, slot, shim);
        self.record = Some(record);
        self.save()?;
        self.claim_name(orders)?;
        still_wanted(pipes)?;

        let skeleton = base.skeleton(self.home)?;
        let limits = orders.limits.to_engine();
        let cgroup = Cgroup::create(&host.cgroups, self.folder.id().as_str(), &limits)
            .map_err(|cause| engine("create", cause))?;
        let (log_read, log_write) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|cause| io_error("create", "a pipe", cause))?;
        let (agent_listener, ctl_listener) = agent::listeners(self.home, self.folder)?;
        let deadline = deadline(orders.lifetime_ms, now())?;
        let config = agent::config(self.folder.id(), &orders.env, deadline, &ids, host)?;
        let executable = own_file()?;
        let spec = Spec {
            id: self.folder.id().as_str(),
            hostname: self.folder.id().as_str(),
            ids,
            root: Root {
                lowers: vec![skeleton.root.as_fd()],
                host: Some(HostPrograms { additions: skeleton.usr.as_fd(), roots: &base.roots }),
            },
            writable: self.folder.as_fd(),
            // Nobody can ask for its files after a crash of the host: it is destroyed with its maker.
            durability: if orders.owner.is_some() { Durability::Volatile } else { Durability::Synced },
            mounts: orders
                .mounts
                .iter()
                .zip(sources)
                .map(|(mount, source)| to_engine(mount, source))
                .collect(),
            agent: &executable,
            config: config.as_fd(),
            agent_listener: agent_listener.as_fd(),
            ctl_listener: ctl_listener.as_fd(),
            log: log_write.as_fd(),
            cgroup: cgroup.as_ref(),
            limits,
        };
        let plan = sandbar_engine::plan(&spec, host).map_err(|cause| engine("create", cause))?;
        let enforced = plan.enforced();
        let mut report = limits_report(&orders.limits, enforced);
        let kernels = [
            ("nofile", plan.nofile(), enforced.nofile),
            ("inotify", plan.inotify().watches.into(), enforced.inotify),
        ];
        report.extend(kernels.map(|(name, value, state)| limit(name, Some(value), state, false)));
        insist(&orders.limits, enforced, host)?;
        still_wanted(pipes)?;
        let launched = sandbar_engine::launch(plan).map_err(|cause| engine("create", cause))?;
        if let Some(record) = &mut self.record {
            record.private.agent = Some(AgentMark::new(launched.pid, launched.start_time));
            record.limits = report;
        }
        self.save()?;
        Ok((launched, cgroup, log_read))
    }

    /// How ids are mapped, and the number of the range. With a writable mount an ordinary user's sandbox has one id, so that its user is the
    /// mount's owner on the host; anything else could write nothing there.
    fn ids(&self, host: &Host, orders: &CreateOrders) -> Result<(IdMode, Option<u32>)> {
        if !host.needs_range() {
            let writable = orders.mounts.iter().any(|mount| mount.access == MountAccess::ReadWrite);
            return Ok((if writable { IdMode::Single } else { host.user_id_mode() }, None));
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

    fn claim_name(&self, orders: &CreateOrders) -> Result<()> {
        let Some(name) = &orders.name else { return Ok(()) };
        let holder = self
            .home
            .claim_name(name, self.folder.id())
            .map_err(|cause| io_error("create", &format!("name `{name}`"), cause))?;
        match holder {
            None => Ok(()),
            Some(holder) => Err(fail(
                ErrorKind::AlreadyExists,
                "create",
                format!("the name `{name}` is taken by sandbox `{holder}`"),
            )
            .with_resource(format!("sandbox name `{name}`"))
            .with_hint("choose another name, or destroy that sandbox")),
        }
    }

    fn save(&self) -> Result<()> {
        let Some(record) = &self.record else { return Ok(()) };
        self.folder.write_record(record).map_err(|cause| {
            io_error(
                "create",
                &format!("`{}/record.json`", self.home.folder_path(self.folder.id()).display()),
                cause,
            )
        })
    }

    /// Takes back what was done; what does not go is added to the error.
    fn undo(self, error: Error, record: Option<StoredRecord>) -> Error {
        match teardown::tear_down(self.home, self.folder, record, self.lock, Groups::Unknown) {
            Ok(()) => error,
            Err(left) => left.left_behind().iter().cloned().fold(error, Error::with_left_behind),
        }
    }
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

fn new_record(
    id: &SandboxId,
    orders: &CreateOrders,
    base: &Base,
    ids: &IdMode,
    slot: Option<u32>,
    shim: Option<AgentMark>,
) -> StoredRecord {
    StoredRecord {
        version: SandboxRecord::VERSION,
        id: id.clone(),
        name: orders.name.clone(),
        project: orders.project.clone(),
        state: State::Creating,
        template: template::HOST.to_owned(),
        labels: orders.labels.clone(),
        created_at: now(),
        started_at: None,
        deadline: None,
        on_deadline: DeadlineAction::Destroy,
        isolation: isolation(ids),
        limits: BTreeMap::new(),
        last_kill: None,
        ports: Vec::new(),
        egress: EGRESS,
        reason: None,
        private: Private {
            ids: ids.clone(),
            slot,
            agent: None,
            shim,
            owner: orders.owner.clone(),
            fingerprint: base.fingerprint.clone(),
            chosen_ports: Vec::new(),
            rest: Map::new(),
        },
        rest: Map::new(),
    }
}

/// The end of a lifetime that begins now.
pub(super) fn deadline(lifetime_ms: Option<u64>, now: Timestamp) -> Result<Option<Timestamp>> {
    let Some(lifetime) = lifetime_ms else { return Ok(None) };
    now.checked_add(Duration::from_millis(lifetime)).map(Some).map_err(|_| {
        fail(
            ErrorKind::InvalidInput,
            "create",
            format!("a deadline {lifetime} ms from now is beyond the calendar"),
        )
    })
}

/// The caller may have gone away while this took its time.
fn still_wanted(pipes: &Pipes) -> Result<()> {
    if pipes.caller_is_gone() {
        return Err(fail(ErrorKind::Conflict, "create", "the caller is gone"));
    }
    Ok(())
}

/// This process, for those who have to end it should it not do that itself.
pub(super) fn own_mark() -> Result<Option<AgentMark>> {
    AgentMark::of(rustix::process::getpid()).map_err(|cause| engine("create", cause))
}

/// The executable itself: it is the agent, too.
fn own_file() -> Result<PathBuf> {
    std::fs::read_link("/proc/self/exe").map_err(|cause| io_error("create", "`/proc/self/exe`", cause))
}

fn to_engine<'a>(mount: &'a MountOrder, source: &'a OwnedFd) -> Mount<'a> {
    Mount {
        source: source.as_fd(),
        target: Path::new(OsStr::from_bytes(&mount.target)),
        access: match mount.access {
            MountAccess::ReadOnly => sandbar_engine::Access::ReadOnly,
            MountAccess::ReadWrite => sandbar_engine::Access::ReadWrite,
        },
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
