use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sandbar_core::{
    Error, ErrorKind, ForkOptions, ForkOutcome, ForkVolumes, Forking, MountAccess, Result, Sandbox,
    SandboxId, State,
};
use sandbar_engine::LAYERS_FOLDER;

use super::Shared;
use super::link::Link;
use crate::aside::aside;
use crate::ask::{COPY, misplaced};
use crate::config::BACKEND;
use crate::error::{fail, gone, io_error, not_running, unknown};
use crate::home::{AgentMark, Folder, Home, Lock, Pending, StoredRecord};
use crate::network;
use crate::observe::Observed;
use crate::shim::protocol::{CreateOrders, Op, Reply, Snapped};
use crate::shim::{copy, kept};
use crate::store::{self, Boot, Hold, LayerId, Merged, StoreLock};

const FORK: &str = "fork";
/// What a stopped sandbox is forked by.
const LAYER: &str = "layer";

#[async_trait]
impl Forking for Shared {
    /// Mechanism `layer` where nothing runs in the parent but its agent, or the parent is stopped: what it wrote becomes a layer that both share, in
    /// the same time however much that is; connections to its agent that are open then end. Else it stands still meanwhile: mechanism `subvolume` where the
    /// data folder is on btrfs, a snapshot; `reflink` where the file system shares the bytes of files; `copy` elsewhere.
    async fn fork(&self, options: ForkOptions) -> Result<(Arc<dyn Sandbox>, ForkOutcome)> {
        self.0.fork(options).await
    }
}

impl Link {
    async fn fork(&self, options: ForkOptions) -> Result<(Arc<dyn Sandbox>, ForkOutcome)> {
        let ForkOptions { name, egress, volumes } = options;
        let egress = egress.map(|policy| network::seal(FORK, policy)).transpose()?;
        let seen = self.see(FORK)?;
        // Before anything is done to the parent.
        child_orders(&seen, volumes)?;
        let home = self.home()?;
        if let Some(name) = &name
            && let Some(holder) =
                home.name_holder(name).map_err(|cause| io_error(FORK, &format!("name `{name}`"), cause))?
            && Folder::open(&home, &holder)
                .map_err(|cause| io_error(FORK, &format!("name `{name}`"), cause))?
                .is_some()
        {
            let message = format!("the name `{name}` is taken by sandbox `{holder}`");
            return Err(fail(ErrorKind::AlreadyExists, FORK, message)
                .with_resource(format!("sandbox name `{name}`"))
                .with_hint("choose another name, or destroy that sandbox"));
        }
        let merged = self.compact(&seen).await?;
        // The store is held until the copy's record names the layer.
        let (Snapped { layers, mechanism, copied_bytes }, _store) = self.snapshot(merged).await?;
        let seen = self.see(FORK)?;
        let mut orders = child_orders(&seen, volumes)?;
        orders.name = name;
        orders.boot = Boot { layers, ..orders.boot };
        if let Some(egress) = egress {
            orders.egress =
                Some(egress).filter(|policy| *policy.public() != sandbar_core::EgressPolicy::DenyAll);
        }
        let copy = self.shared_inner().make(orders, FORK).await?;
        Ok((copy, ForkOutcome { mechanism, copied_bytes, processes_preserved: false }))
    }

    /// What a copy boots from, of the parent as it is at some moment of this call.
    async fn snapshot(&self, merged: Option<Merged>) -> Result<(Snapped, StoreLock)> {
        let id = self.id().as_str();
        for _ in 0..STATES {
            let seen = self.see(FORK)?;
            match seen.state() {
                State::Running | State::Sleeping => {
                    let op = || Op::Snapshot { merged: merged.clone() };
                    let (reply, stream) = self.ask_shim_asleep(op, COPY, FORK).await?;
                    let Reply::Snapshot(snapped) = reply else { return Err(misplaced(FORK)) };
                    let home = self.home()?;
                    let store = aside(FORK, move || StoreLock::take(&home, Hold::Shared, FORK)).await?;
                    // Until now the shim held it.
                    drop(stream);
                    return Ok((snapped, store));
                }
                State::Stopped => {
                    let (home, id, merged) = (self.home()?, self.id().clone(), merged.clone());
                    let executable = self.inner().executable()?;
                    let work = move || of_stopped(&home, &id, &executable, merged.as_ref());
                    let done = aside(FORK, work).await?;
                    if let Some(snapped) = done {
                        return Ok(snapped);
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                state => return Err(not_running(FORK, id, state, seen.record.reason.as_deref())),
            }
        }
        Err(unknown(FORK, id, "its shim comes and goes"))
    }

    /// Has some of the parent's layers become one where they are many. It goes on meanwhile.
    async fn compact(&self, seen: &Observed) -> Result<Option<Merged>> {
        let layers = seen.record.private.boot.as_ref().map(|boot| boot.layers.clone()).unwrap_or_default();
        let (home, executable) = (self.home()?, self.inner().executable()?);
        aside(FORK, move || store::compact(&home, &executable, &layers, FORK)).await
    }

    fn home(&self) -> Result<Home> {
        Home::open(&self.inner().home)?.ok_or_else(|| gone(FORK, self.id().as_str()))
    }
}

/// How often a parent may be found in another state than it was just seen in: one that stops has a shim for some milliseconds.
const STATES: usize = 400;

/// Makes a layer of what a stopped sandbox wrote; `None` means that somebody guards it, or that it runs.
fn of_stopped(
    home: &Home,
    id: &SandboxId,
    executable: &Path,
    merged: Option<&Merged>,
) -> Result<Option<(Snapped, StoreLock)>> {
    let blind = |cause: &dyn std::fmt::Display| unknown(FORK, id.as_str(), cause);
    let folder = Folder::open(home, id).map_err(|cause| blind(&cause))?;
    let folder = folder.ok_or_else(|| gone(FORK, id.as_str()))?;
    let Some(_lock) = Lock::take(&folder).map_err(|cause| blind(&cause))? else { return Ok(None) };
    if !folder.is_in_place(home).map_err(|cause| blind(&cause))? {
        return Err(gone(FORK, id.as_str()));
    }
    let record = folder.record().map_err(|cause| blind(&cause))?;
    let mut record = record.ok_or_else(|| gone(FORK, id.as_str()))?;
    let agent = record.private.agent.as_ref();
    if agent.map_or(Ok(false), AgentMark::lives).map_err(|cause| blind(&cause))? {
        return Ok(None);
    }
    store::recover(home, &folder, &mut record)?;
    let write = |record: &StoredRecord| {
        folder.write_record(record).map_err(|cause| io_error(FORK, "`record.json`", cause))
    };
    let is_alone = kept::orders(&folder, &record)
        .map_err(|cause| io_error(FORK, "`orders.json`", cause))?
        .is_some_and(|orders| kept::keeps_to_itself(&orders));
    if !is_alone {
        // Who has a descriptor of a file still writes to it.
        return copy::of_stopped(home, &folder, &record, executable, merged).map(Some);
    }
    let store = StoreLock::take(home, Hold::Shared, FORK)?;
    let mut boot = record.private.boot.clone().unwrap_or_else(Boot::host);
    if let Some(merged) = merged {
        merged.apply_if_there(home, &mut boot.layers)?;
    }
    let snapped = |boot: &Boot| {
        let layers = boot.layers.clone();
        (Snapped { layers, mechanism: LAYER.to_owned(), copied_bytes: 0 }, store)
    };
    let has_written = folder.has_dir(LAYERS_FOLDER);
    if !has_written.map_err(|cause| io_error(FORK, &format!("`{LAYERS_FOLDER}`"), cause))? {
        // What it wrote became a layer before, and it did not run since.
        record.private.boot = Some(boot.clone());
        write(&record)?;
        return Ok(Some(snapped(&boot)));
    }
    let layer = LayerId::random()?;
    let before = record.clone();
    record.private.pending = Some(Pending::Moving { layer: layer.clone(), next: None });
    write(&record)?;
    boot.layers.insert(0, layer.clone());
    record.private.boot = Some(boot.clone());
    record.private.pending = None;
    let moved = store::move_out(home, &folder, &layer, &record.private.ids).and_then(|()| write(&record));
    if let Err(error) = moved {
        // What can't be taken back now is by whoever starts it, or forks it, next.
        let back = store::move_back(home, &folder, &layer, &record.private.ids).and_then(|()| write(&before));
        return Err(match back {
            Ok(()) => error,
            Err(left) => error.with_left_behind(left.to_string()),
        });
    }
    Ok(Some(snapped(&boot)))
}

/// The orders for a copy, but for what it boots from; refuses what can't be copied.
fn child_orders(seen: &Observed, volumes: ForkVolumes) -> Result<CreateOrders> {
    let Observed { folder, record, .. } = seen;
    let refuse =
        |what: String, why: &str| Error::unsupported(FORK, what, why.to_owned()).with_backend(BACKEND);
    let mut orders = kept::orders(folder, record)
        .map_err(|cause| io_error(FORK, "`orders.json`", cause))?
        .ok_or_else(|| {
            refuse(
                format!("sandbox `{}`", record.id),
                "it was made by a version that did not keep what it was made from",
            )
        })?;
    if orders.mounts.iter().any(|mount| mount.access == MountAccess::ReadWrite) {
        let why = "two sandboxes would write to one folder of the host";
        return Err(refuse("a writable host mount".to_owned(), why)
            .with_hint("mount it read-only, or copy the files instead"));
    }
    if let (Some(volume), ForkVolumes::Refuse) = (orders.volumes.first(), volumes) {
        let why = "two sandboxes would write to one volume";
        return Err(refuse(format!("volume `{}` in a copy", volume.name), why)
            .with_hint("share it read-only, which the options of a fork can say"));
    }
    for volume in &mut orders.volumes {
        volume.access = MountAccess::ReadOnly;
    }
    if record.private.owner.is_some() {
        orders.owner = AgentMark::of(rustix::process::getpid())
            .map_err(|cause| io_error(FORK, "this process", cause))?;
    }
    orders.name = None;
    orders.ports.clear();
    orders.main = None;
    orders.ready = None;
    // One that sleeps, or slept, at its deadline has time again when it runs, and so has its copy.
    let deadline = match record.state {
        State::Running => record.deadline,
        _ => record.deadline_from(Timestamp::now()),
    };
    orders.renewal_ms = record.private.lifetime_ms;
    orders.lifetime_ms = deadline.map(|deadline| {
        let left = deadline.duration_since(Timestamp::now()).as_millis();
        // One that is over is met at once.
        u64::try_from(left).unwrap_or(0).max(1)
    });
    Ok(orders)
}
