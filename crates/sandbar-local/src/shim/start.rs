//! Starting a sandbox again whose processes are gone: its files, its name and what it may do are as they were; its processes are new.

use std::path::Path;
use std::time::Duration;

use sandbar_core::{EgressPolicy, Error, ErrorKind, Result, SandboxId, State};
use sandbar_egress::intercept::Authority;
use sandbar_engine::cgroup::{Cgroup, Layout};

use super::guard::{Guard, Occasion, Wish};
use super::pipes::Pipes;
use super::prepare::{Gateway, Parts, prepare_again};
use super::protocol::CreateOrders;
use super::shared::Shared;
use super::{adopt, agent, create, kept, main_command};
use crate::error::{engine, fail, gone, io_error, unknown};
use crate::home::{AgentMark, Folder, Home, Lock, MainLog, StoredRecord, now};
use crate::observe::is_over;
use crate::store::{self, Hold, StoreLock};
use crate::teardown;

const START: &str = "resume";
/// How long control groups that an earlier life left may take to be empty: nothing lives in them.
const EMPTY: Duration = Duration::from_secs(5);

/// Starts it; `None` means that somebody else guards it. One that should not be there any more is destroyed instead.
pub(super) fn start(home: &Path, id: &SandboxId, pipes: &Pipes) -> Result<Option<Guard>> {
    let blind = |cause: &dyn std::fmt::Display| unknown(START, id.as_str(), cause);
    let home = Home::open(home)?.ok_or_else(|| gone(START, id.as_str()))?;
    let folder =
        Folder::open(&home, id).map_err(|cause| blind(&cause))?.ok_or_else(|| gone(START, id.as_str()))?;
    let Some(lock) = Lock::take(&folder).map_err(|cause| blind(&cause))? else { return Ok(None) };
    if !folder.is_in_place(&home).map_err(|cause| blind(&cause))? {
        return Err(gone(START, id.as_str()));
    }
    let record = folder.record().map_err(|cause| blind(&cause))?.ok_or_else(|| gone(START, id.as_str()))?;
    if let Some(why) = is_over(&record).map_err(|cause| blind(&cause))? {
        return Err(adopt::remove(START, &home, &folder, record, &lock, why));
    }
    let lives = match &record.private.agent {
        Some(agent) => agent.lives().map_err(|cause| blind(&cause))?,
        None => false,
    };
    if lives {
        // It runs, and only its shim is gone: whoever asks looks again and adopts it.
        return Ok(None);
    }
    launch(home, folder, lock, record, pipes).map(Some)
}

fn launch(home: Home, folder: Folder, lock: Lock, mut record: StoredRecord, pipes: &Pipes) -> Result<Guard> {
    if record.private.owner.is_some() {
        // What its maker's end would have removed may be half on the disk: nothing of it was ever flushed.
        let why = "a sandbox that belongs to its maker keeps no files beyond its processes";
        return Err(Error::unsupported(START, format!("sandbox `{}`", record.id), why)
            .with_backend(crate::config::BACKEND)
            .with_hint("destroy it and make a new one"));
    }
    let orders = kept::orders(&folder, &record)
        .map_err(|cause| io_error(START, "`orders.json`", cause))?
        .ok_or_else(|| {
            let why = "it was made by a version that did not keep what it was made from";
            Error::unsupported(START, format!("sandbox `{}`", record.id), why)
                .with_backend(crate::config::BACKEND)
                .with_hint("destroy it and make a new one")
        })?;
    store::recover(&home, &folder, &mut record)?;
    record.private.pending = None;
    // What it boots from is named by its record all the time; this is against a removal that looks at records of before.
    let _store = StoreLock::take(&home, Hold::Shared, START)?;
    if let Some(slot) = record.private.slot {
        let claimed = home.reclaim_slot(folder.id(), slot);
        if !claimed.map_err(|cause| io_error(START, "its range of host ids", cause))? {
            let why = "its range of host ids is in use by a sandbox of another data folder";
            return Err(fail(ErrorKind::Conflict, START, why)
                .with_hint("destroy that one first: all ranges are in `/run/sandbar/ids`"));
        }
    }
    remove_groups(folder.id())?;
    let gateway = match &orders.egress {
        Some(policy) if *policy.public() != EgressPolicy::DenyAll => Gateway::Required,
        _ => Gateway::IfPossible,
    };
    let ids = (record.private.ids.clone(), record.private.slot);
    let prepared = prepare_again(home, folder, lock, ids, orders.shape(), pipes, gateway);
    let mut parts = prepared?;
    let wish = match configure(&mut parts, &mut record, &orders) {
        Ok(wish) => wish,
        Err(error) => {
            // It was not configured, so it ends as soon as nobody holds its pipe; the record still says what was.
            let mark = AgentMark::new(parts.agent.pid, parts.agent.start_time);
            let ended = mark.and_then(|mark| teardown::end_agent(&mark));
            let ended = ended.map_err(|cause| io_error(START, "the agent", cause));
            return Err(match ended.and_then(|()| remove_groups(parts.folder.id())) {
                Ok(()) => error,
                Err(left) => error.with_left_behind(left.to_string()),
            });
        }
    };
    let Parts { home, folder, lock, cgroup, agent, log, .. } = parts;
    let shared = Shared::new(home, folder, lock, record, cgroup, agent.pidfd);
    Ok(Guard::of_new(shared, wish, log, Occasion::Start))
}

/// Writes down that it runs, before what runs can be more than a wait for its configuration. Where this shim ends in between, the agent does, too, and
/// a reader finds it stopped.
fn configure(parts: &mut Parts, record: &mut StoredRecord, orders: &CreateOrders) -> Result<Wish> {
    let Parts { folder, ids, host, .. } = &*parts;
    // From now on, until it is ready: then it is told anew.
    record.deadline = record.deadline_from(now());
    let kept = folder.authority().map_err(|cause| io_error(START, "`egress-ca`", cause))?;
    let authority = kept.map(|sealed| Authority::from_sealed(&sealed)).transpose()?;
    let text = agent::config(folder.id(), orders, record.deadline, ids, host, authority.as_ref())?;
    let mark = AgentMark::new(parts.agent.pid, parts.agent.start_time)
        .map_err(|cause| io_error(START, "the machine's boot", cause))?;
    record.private.agent = Some(mark);
    record.private.shim = create::own_mark()?;
    record.private.asleep = None;
    record.private.fallbacks.clone_from(&parts.fallbacks);
    record.private.fingerprint =
        if orders.boot.on_host { parts.base.fingerprint.clone() } else { String::new() };
    record.limits.clone_from(&parts.limits);
    record.state = State::Running;
    record.reason = None;
    record.egress = create::summary(parts, orders);
    if let Some(order) = &orders.main {
        record.main = Some(main_command::unstarted(order));
        let log = MainLog::open(folder).map_err(|cause| io_error(START, "`main.log`", cause))?;
        record.private.main_base = log.next();
    }
    folder.write_record(record).map_err(|cause| io_error(START, "`record.json`", cause))?;
    let pipe = parts
        .config
        .take()
        .ok_or_else(|| fail(ErrorKind::Unexpected, START, "the agent is configured already"))?;
    Ok(Wish {
        ports: Vec::new(),
        lifetime_ms: None,
        network: parts.agent.network.take(),
        configuration: Some(agent::Configuration::new(pipe, text)),
        ready: orders.ready.clone(),
    })
}

/// Stopped as before, after a start that did not come off.
pub(super) fn stop_again(shared: &Shared, error: &Error) -> Result<()> {
    let mark = shared.look(|record| record.private.agent.clone());
    if let Some(mark) = mark {
        teardown::end_agent(&mark).map_err(|cause| io_error(START, "the agent", cause))?;
    }
    let reason = format!("it was not started again: {}", error.message());
    let noted = shared.update(|record| {
        record.state = State::Stopped;
        record.reason = Some(reason);
    });
    if let Some(group) = &shared.cgroup {
        group.remove(EMPTY).map_err(|cause| engine(START, cause))?;
    }
    noted.map_err(|cause| io_error(START, "`record.json`", cause))
}

/// Removes control groups that an earlier life left. Nobody lives in them.
pub(super) fn remove_groups(id: &SandboxId) -> Result<()> {
    let left = Cgroup::reopen(&Layout::observe(), id.as_str()).map_err(|cause| engine(START, cause))?;
    match left {
        Some(group) => {
            group.kill(EMPTY).and_then(|()| group.remove(EMPTY)).map_err(|cause| engine(START, cause))
        }
        None => Ok(()),
    }
}
