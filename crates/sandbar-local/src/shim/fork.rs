//! What a copy of a running or sleeping sandbox boots from: a read-only layer of what it has written so far.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use sandbar_core::{ErrorKind, Result};
use sandbar_egress::intercept::Authority;
use tokio::time::timeout;

use super::prepare::{Run, relaunch};
use super::protocol::{CreateOrders, Snapped};
use super::shared::Shared;
use super::{agent, egress, guard, kept, log, processes};
use crate::aside::aside;
use crate::ask::COPY_PATIENCE;
use crate::ctl;
use crate::error::{fail, io_error};
use crate::home::{AgentMark, Pending};
use crate::inside::Received;
use crate::store::{self, Boot, Hold, LayerId, Merged, StoreLock};
use crate::template::Base;

const FORK: &str = "fork";
/// How long the agent may take to stand still, and its successor to answer; both take milliseconds.
const STILL: Duration = Duration::from_secs(10);
/// As [`STILL`].
const ANSWER: Duration = Duration::from_secs(20);
/// How long processes that ended just now may take to be gone.
const ENDING: Duration = Duration::from_millis(10);
/// Between two looks whether it stands still.
const LOOK: Duration = Duration::from_micros(200);

/// Nothing but the agent holds the files: the writable layers become a read-only one, and another agent goes on over it.
pub(crate) const LAYER: &str = "layer";
/// Layers of a stack that another is laid on by moving: so far below the most of an overlay that copies of its copies find room too.
const MOST_LAYERS: usize = sandbar_engine::MAX_LOWERS - 8;

/// Makes the layer. Nothing of it goes before somebody else names it, as long as the store is held.
pub(super) async fn snapshot(shared: &Arc<Shared>, merged: Option<&Merged>) -> Result<(Snapped, StoreLock)> {
    let _turn = shared.turn(COPY_PATIENCE, FORK).await?;
    if let Some(snapped) = by_layer(shared, merged).await? {
        return Ok(snapped);
    }
    super::copy::snapshot(shared, merged).await
}

/// By moving the writable layers; `None` means that it can't be done so, and all is as before.
async fn by_layer(shared: &Arc<Shared>, merged: Option<&Merged>) -> Result<Option<(Snapped, StoreLock)>> {
    let has_more =
        |record: &crate::home::StoredRecord| record.main.is_some() || record.private.asleep.is_some();
    if shared.look(has_more) {
        return Ok(None);
    }
    let record = shared.record();
    let orders = kept::orders(&shared.folder, &record);
    let Some(mut orders) = orders.map_err(|cause| io_error(FORK, "`orders.json`", cause))? else {
        return Ok(None);
    };
    if !kept::keeps_to_itself(&orders) {
        // Who has a descriptor of a file would go on to write to what is the copy's, too.
        return Ok(None);
    }
    let end = Instant::now() + ENDING;
    while !is_alone(shared) {
        if Instant::now() >= end {
            return Ok(None);
        }
        tokio::time::sleep(LOOK).await;
    }
    let store = hold_store(shared).await?;
    if let Some(merged) = merged {
        merged.apply_if_there(&shared.home, &mut orders.boot.layers)?;
    }
    if orders.boot.layers.len() >= MOST_LAYERS {
        // Many copies at once, before the stack was made shorter: the parent's stays as deep as it is by copying.
        return Ok(None);
    }
    let Some(quiet) = Silent::of(shared).await? else { return Ok(None) };
    // The next agent goes on with them: who connects meanwhile waits, and is served.
    let listeners = match ctl::ask(&shared.folder, &ctl::Op::Listeners, None).await {
        Ok(ctl::Outcome::Done(received)) => received,
        Ok(ctl::Outcome::No(why)) => return Err(quiet.over(not_given(&why)).await),
        Err(failure) => return Err(quiet.over(not_given(&failure)).await),
    };
    match replace(shared, orders, &listeners).await {
        Ok(Some(snapped)) => Ok(Some((snapped, store))),
        Ok(None) => {
            quiet.end().await;
            Ok(None)
        }
        Err(error) => Err(quiet.over(error).await),
    }
}

async fn hold_store(shared: &Arc<Shared>) -> Result<StoreLock> {
    let of = Arc::clone(shared);
    aside(FORK, move || StoreLock::take(&of.home, Hold::Shared, FORK)).await
}

/// Whether nothing runs but the agent; what can't be looked at is taken for something. An agent of before may still be on its way out beside it.
fn is_alone(shared: &Shared) -> bool {
    processes::is_alone(shared).unwrap_or(false)
}

/// An agent that begins nothing new. Should it not be told that this is over, it goes on after some seconds.
struct Silent<'a>(&'a Shared);

impl<'a> Silent<'a> {
    /// `None` means that something goes on in it.
    async fn of(shared: &'a Shared) -> Result<Option<Self>> {
        match ctl::ask(&shared.folder, &ctl::Op::Quiet, None).await {
            Ok(ctl::Outcome::Done(_)) => Ok(Some(Self(shared))),
            // Or it is of a version that can't say.
            Ok(ctl::Outcome::No(_)) => Ok(None),
            Err(failure) => Err(not_given(&failure)),
        }
    }

    async fn end(self) {
        let _ = ctl::ask(&self.0.folder, &ctl::Op::Go, None).await;
    }

    async fn over(self, error: sandbar_core::Error) -> sandbar_core::Error {
        self.end().await;
        error
    }
}

/// Gives the sandbox another agent over new layers; `None` means that something else runs in it.
async fn replace(
    shared: &Arc<Shared>,
    orders: CreateOrders,
    listeners: &Received,
) -> Result<Option<Snapped>> {
    ctl::checked_listeners(listeners.as_slice()).map_err(|cause| not_given(&cause))?;
    let is_owned = shared.look(|record| record.private.owner.is_some());
    let before = shared.agent();
    let still = Still::of(shared, Arc::clone(&before)).await?;
    if !is_alone(shared) {
        return Ok(None);
    }
    // From here on nobody writes.
    let layer = LayerId::random()?;
    let moving = Moving::begin(shared, &layer)?;
    let mut boot = orders.boot.clone();
    boot.layers.insert(0, layer);
    let orders = CreateOrders { boot: boot.clone(), main: None, ..orders };
    let shape = super::protocol::Shape { owned: is_owned, ..orders.shape() };
    let listeners: Vec<_> = listeners.as_slice().iter().map(AsFd::as_fd).collect();
    let listeners = <[BorrowedFd<'_>; 2]>::try_from(listeners).map_err(|_| lost())?;
    let (run, base, host) = relaunch(shared, &shape, listeners)?;
    let mut next = Next { shared, mark: mark(&run)?, run: Some(run) };
    next.tell(&orders, &boot.layers[0], &host)?;
    next.commit(&boot, &base)?;
    // It is done: what does not work from here on is a fault of the sandbox as it is now.
    moving.done();
    still.done();
    next.take_over(before).await?;
    Ok(Some(Snapped { layers: boot.layers, mechanism: LAYER.to_owned(), copied_bytes: 0 }))
}

/// An agent that stands still until this is dropped.
struct Still(Option<Arc<OwnedFd>>);

impl Still {
    async fn of(shared: &Shared, agent: Arc<OwnedFd>) -> Result<Self> {
        let broken = |why: String| fail(ErrorKind::Unavailable, FORK, why);
        let mark = shared.look(|record| record.private.agent.clone());
        let pid = mark.and_then(|mark| mark.pid().ok().flatten());
        let pid = pid.ok_or_else(|| broken("its agent is not known".to_owned()))?;
        pidfd_send_signal(&*agent, Signal::STOP)
            .map_err(|cause| broken(format!("its agent can't be stopped: {cause}")))?;
        let still = Self(Some(agent));
        let end = Instant::now() + STILL;
        while !processes::is_stopped(pid) {
            if Instant::now() >= end {
                return Err(broken(format!("its agent did not stop within {} s", STILL.as_secs())));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(still)
    }

    /// It is not to go on.
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        if let Some(agent) = &self.0 {
            let _ = pidfd_send_signal(&**agent, Signal::CONT);
        }
    }
}

/// Writable layers that were moved; dropped, they are moved back.
struct Moving<'a> {
    shared: &'a Shared,
    layer: Option<LayerId>,
}

impl<'a> Moving<'a> {
    fn begin(shared: &'a Shared, layer: &LayerId) -> Result<Self> {
        shared
            .update(|record| {
                record.private.pending = Some(Pending::Moving { layer: layer.clone(), next: None });
            })
            .map_err(|cause| io_error(FORK, "`record.json`", cause))?;
        let moving = Self { shared, layer: Some(layer.clone()) };
        let ids = shared.look(|record| record.private.ids.clone());
        store::move_out(&shared.home, &shared.folder, layer, &ids)?;
        Ok(moving)
    }

    fn done(mut self) {
        self.layer = None;
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        let Some(layer) = &self.layer else { return };
        let ids = self.shared.look(|record| record.private.ids.clone());
        let back = store::move_back(&self.shared.home, &self.shared.folder, layer, &ids);
        if let Err(error) = back {
            // The record still says what is to be done: the next shim does it.
            log::say(&format_args!("a fork was not taken back: {error}"));
            return;
        }
        if let Err(cause) = self.shared.update(|record| record.private.pending = None) {
            log::say(&format_args!("the record does not say that a fork was taken back: {cause}"));
        }
    }
}

/// The agent that is to follow; dropped before it took over, it ends.
struct Next<'a> {
    shared: &'a Arc<Shared>,
    mark: AgentMark,
    run: Option<Run>,
}

impl Next<'_> {
    /// Tells it all that it has to know. From here on it does not end with this shim, so the record says of it before that it is to.
    fn tell(&mut self, orders: &CreateOrders, layer: &LayerId, host: &sandbar_engine::Host) -> Result<()> {
        let shared = self.shared;
        let (ids, deadline) = shared.look(|record| (record.private.ids.clone(), record.deadline));
        let kept = shared.folder.authority().map_err(|cause| io_error(FORK, "`egress-ca`", cause))?;
        let authority = kept.map(|sealed| Authority::from_sealed(&sealed)).transpose()?;
        let text = agent::config(shared.folder.id(), orders, deadline, &ids, host, authority.as_ref())?;
        let pending = Pending::Moving { layer: layer.clone(), next: Some(self.mark.clone()) };
        shared
            .update(|record| record.private.pending = Some(pending))
            .map_err(|cause| io_error(FORK, "`record.json`", cause))?;
        let pipe = self.run.as_mut().and_then(|run| run.config.take()).ok_or_else(lost)?;
        agent::Configuration::new(pipe, text).tell()
    }

    /// Writes down that the sandbox is this agent's from now on.
    fn commit(&self, boot: &Boot, base: &Base) -> Result<()> {
        let run = self.run.as_ref().ok_or_else(lost)?;
        self.shared
            .update(|record| {
                let before = record.private.agent.replace(self.mark.clone());
                record.private.boot = Some(boot.clone());
                record.private.fallbacks.clone_from(&run.fallbacks);
                if boot.on_host {
                    record.private.fingerprint.clone_from(&base.fingerprint);
                }
                record.private.pending = before.map(Pending::Ending);
            })
            .map_err(|cause| io_error(FORK, "`record.json`", cause))
    }

    /// Ends the agent of before, and waits until this one answers.
    async fn take_over(mut self, before: Arc<OwnedFd>) -> Result<()> {
        let shared = self.shared;
        let Run { agent, log, .. } = self.run.take().ok_or_else(lost)?;
        shared.set_agent(agent.pidfd);
        let _ = pidfd_send_signal(&*before, Signal::KILL);
        // The kernel takes its mounts down in its last breath; nobody has to wait for that.
        let reaping = move || waitid(WaitId::PidFd(before.as_fd()), WaitIdOptions::EXITED);
        drop(tokio::task::spawn_blocking(reaping));
        let keeping = log::keep(Arc::clone(shared), log);
        tokio::spawn(async move {
            // Without its log an agent runs as well.
            let _ = keeping.await;
        });
        if let Some(network) = agent.network {
            egress::replace(shared, network).await?;
        }
        let answered = timeout(ANSWER, guard::health(shared)).await;
        answered
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            .map_err(|cause| io_error(FORK, "the first answer of the parent's next agent", cause))?;
        shared
            .update(|record| record.private.pending = None)
            .map_err(|cause| io_error(FORK, "`record.json`", cause))
    }
}

fn mark(run: &Run) -> Result<AgentMark> {
    AgentMark::new(run.agent.pid, run.agent.start_time)
        .map_err(|cause| io_error(FORK, "the machine's boot", cause))
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        if let Some(run) = &self.run {
            let _ = pidfd_send_signal(&run.agent.pidfd, Signal::KILL);
            let _ = waitid(WaitId::PidFd(std::os::fd::AsFd::as_fd(&run.agent.pidfd)), WaitIdOptions::EXITED);
        }
    }
}

fn not_given(why: &dyn std::fmt::Display) -> sandbar_core::Error {
    fail(ErrorKind::Unavailable, FORK, format!("its agent does not hand over: {why}"))
}

fn lost() -> sandbar_core::Error {
    fail(ErrorKind::Unexpected, FORK, "the next agent is lost")
}
